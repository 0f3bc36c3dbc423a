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
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = find_programs()
    if programs is None:
        pytest.skip(f"no PostgreSQL here: neither {VARIABLE} nor initdb and postgres")
    user = ordinary_user()
    if user is None:
        pytest.skip("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'")
    with private_server(programs, user) as address:
        yield address


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
    initdb, postgres = map(str, programs)
    folder = Path(tempfile.mkdtemp(prefix="truthfl-pg-"))  # short, since a socket's path must be
    process = None
    try:
        as_user = {"cwd": folder, "env": {"PATH": os.defpath, "LC_ALL": "C"}, "stdin": subprocess.DEVNULL}
        if os.geteuid() == 0:
            os.chown(folder, user.pw_uid, user.pw_gid)
            as_user |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        log = folder / "log"
        with log.open("wb") as out:
            as_user |= {"stdout": out, "stderr": out}
            made = subprocess.run(
                [initdb, "-D", "data", "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-sync"],
                check=False,
                **as_user,
            )
            if made.returncode != 0:
                pytest.skip(f"initdb failed: {log.read_text().strip().splitlines()[-1]}")
            settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
            process = subprocess.Popen([postgres, "-D", "data", "-k", str(folder), *settings], **as_user)
        address = f"postgresql://tester@/postgres?host={folder}"
        wait_until_there(address, process, log)
        yield address
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # do not wait for those who are connected
            try:
                process.wait(timeout=START_S)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


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
