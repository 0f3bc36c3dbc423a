"""A PostgreSQL server for the tests: the one in TRUTHFL_TEST_POSTGRESQL, or a private one of our own, or none.

A private server listens on a socket in its own folder only, runs as an ordinary user and ends with the tests.
"""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

VARIABLE = "TRUTHFL_TEST_POSTGRESQL"
START_S = 60
SETTINGS = {"listen_addresses": "", "fsync": "off", "max_connections": "100", "shared_buffers": "16MB"}


@pytest.fixture(scope="session")
def postgresql_server():
    """The address of a database on a server where we may make others."""
    if given := os.environ.get(VARIABLE):
        yield given
        return
    with private_server(*programs_and_user()) as server:
        server.prepare()
        server.start()
        yield server.address


@pytest.fixture(scope="session")
def empty_cluster():
    """The files of a server in which nothing is written, to be copied: making them takes longer than many tests."""
    with private_server(*programs_and_user()) as server:
        server.prepare()
        yield server.folder / "data"


@pytest.fixture
def own_postgresql(empty_cluster):
    """A server of this test's own, which it may stop and start."""
    with private_server(*programs_and_user()) as server:
        server.copy(empty_cluster)
        server.start()
        yield server


def programs_and_user():
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = find_programs()
    if programs is None:
        pytest.skip(f"no PostgreSQL here: neither {VARIABLE} nor initdb and postgres")
    user = ordinary_user()
    if user is None:
        pytest.skip("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'")
    return programs, user


@pytest.fixture
def postgresql_database(postgresql_server):
    """The address of an empty database of this test's own."""
    server = make_url(postgresql_server).set(drivername="postgresql+psycopg")
    name = f"truthfl_test_{uuid.uuid4().hex}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        yield server.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    finally:
        engine.dispose()


def find_programs():
    """initdb and postgres, of the same installation."""
    folders = [Path(found).resolve().parent for name in ("initdb", "postgres") if (found := shutil.which(name))]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder / "initdb", folder / "postgres"
    return None


def ordinary_user():
    """Whom the server may run as: us, unless we are root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


@contextmanager
def private_server(programs, user):
    """A server of one's own, without files and not started; ended and deleted afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="truthfl-pg-"))  # short, since a socket's path must be
    server = PrivateServer(programs, user, folder)
    try:
        yield server
    finally:
        server.end()
        shutil.rmtree(folder, ignore_errors=True)


class PrivateServer:
    """PostgreSQL in a folder, with a socket there."""

    def __init__(self, programs, user, folder):
        self.programs, self.folder, self.log = programs, folder, folder / "log"
        self.address = f"postgresql://tester@/postgres?host={folder}"
        self.process = None
        self.as_user = {"cwd": folder, "env": {"PATH": os.defpath, "LC_ALL": "C"}, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:
            os.chown(folder, user.pw_uid, user.pw_gid)
            self.as_user |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def prepare(self):
        words = [str(self.programs[0]), "-D", "data", "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-sync"]
        if self.run(words).returncode != 0:
            pytest.skip(f"initdb failed: {self.log.read_text().strip().splitlines()[-1]}")

    def copy(self, cluster):
        assert self.run(["cp", "-a", str(cluster), "data"]).returncode == 0, self.log.read_text()

    def start(self):
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        words = [str(self.programs[1]), "-D", "data", "-k", str(self.folder), *settings]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=out, **self.as_user)
        wait_until_there(self.address, self.process, self.log)

    def stop_at_once(self):
        """As a crash: connections break, nothing is written any more."""
        stop = self.run([str(self.programs[1].with_name("pg_ctl")), "stop", "-D", "data", "-m", "immediate"])
        assert stop.returncode == 0, self.log.read_text()
        self.process.wait(timeout=START_S)

    def require_passwords(self):
        """From now on, `tester` comes in with the password "right" alone."""
        engine = create_engine(make_url(self.address).set(drivername="postgresql+psycopg"))
        with engine.begin() as connection:
            connection.execute(text("ALTER USER tester PASSWORD 'right'"))
        rules = "local all all scram-sha-256\n"
        (self.folder / "data" / "pg_hba.conf").write_text(rules)
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_reload_conf()"))
        engine.dispose()

    def run(self, words):
        with self.log.open("ab") as out:
            return subprocess.run(words, check=False, stdout=out, stderr=out, **self.as_user)

    def end(self):
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)  # do not wait for those who are connected
        try:
            self.process.wait(timeout=START_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()


def wait_until_there(address, process, log):
    engine = create_engine(make_url(address).set(drivername="postgresql+psycopg"))
    latest = time.monotonic() + START_S
    try:
        while True:
            try:
                engine.connect().close()
                return
            except OperationalError:
                if process.poll() is not None or time.monotonic() > latest:
                    pytest.fail(f"PostgreSQL did not start: {log.read_text()}")
                time.sleep(0.05)
    finally:
        engine.dispose()
