"""A private PostgreSQL in its own folder, for tests and the soak.

It runs as an ordinary user and listens only on a socket in the folder.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

START_S = 60
SETTINGS = {"listen_addresses": "", "fsync": "off", "max_connections": "100", "shared_buffers": "16MB"}


class NoPostgreSQL(Exception):  # noqa: N818 - tests are skipped when this is missing
    """There is no PostgreSQL here, or no user who may run it."""


def find_programs() -> tuple[Path, Path]:
    """initdb and postgres, of the same installation."""
    folders = [Path(found).resolve().parent for name in ("initdb", "postgres") if (found := shutil.which(name))]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder / "initdb", folder / "postgres"
    raise NoPostgreSQL("there are no programs initdb and postgres")


def ordinary_user() -> pwd.struct_passwd:
    """The user for the server: the current user, unless that is root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise NoPostgreSQL("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'")


@contextmanager
def restartable_server(files: Path | None = None) -> Iterator[PrivateServer]:
    """A private server, which can be stopped without warning and started again.

    files  of a server that never ran, to copy; without them, new files are made, which takes longer
    """
    with server_without_files() as server:
        if files is None:
            server.prepare()
        else:
            server.copy(files)
        server.start()
        yield server


@contextmanager
def server_without_files() -> Iterator[PrivateServer]:
    """A server that is not started and has an empty folder; it is ended and deleted afterwards."""
    programs, user = find_programs(), ordinary_user()
    folder = Path(tempfile.mkdtemp(prefix="truthfl-pg-"))  # short, since a socket's path must be
    server = PrivateServer(programs, user, folder)
    try:
        yield server
    finally:
        server.end()
        shutil.rmtree(folder, ignore_errors=True)


class PrivateServer:
    """PostgreSQL in a folder, with a socket there."""

    def __init__(self, programs: tuple[Path, Path], user: pwd.struct_passwd, folder: Path) -> None:
        self.programs, self.folder, self.log = programs, folder, folder / "log"
        self.address = f"postgresql://tester@/postgres?host={folder}"
        self.process: subprocess.Popen[bytes] | None = None
        self.as_user: dict[str, Any] = {
            "cwd": folder,
            "env": {"PATH": os.defpath, "LC_ALL": "C"},
            "stdin": subprocess.DEVNULL,
        }
        if os.geteuid() == 0:
            os.chown(folder, user.pw_uid, user.pw_gid)
            self.as_user |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def prepare(self) -> None:
        """Make its files."""
        words = [str(self.programs[0]), "-D", "data", "-A", "trust", "-U", "tester", "-E", "UTF8", "--no-sync"]
        if self.run(words).returncode != 0:
            raise NoPostgreSQL(f"initdb failed: {self.log.read_text().strip().splitlines()[-1]}")

    def copy(self, files: Path) -> None:
        """Copy another server's files."""
        if self.run(["cp", "-a", str(files), "data"]).returncode != 0:
            raise RuntimeError(f"PostgreSQL's files were not copied: {self.log.read_text()}")

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.launch()
        latest = time.monotonic() + START_S
        while not self.answers():
            if self.process is None or self.process.poll() is not None or time.monotonic() > latest:
                raise RuntimeError(f"PostgreSQL did not start: {self.log.read_text()}")
            time.sleep(0.05)

    def launch(self, **popen: Any) -> None:
        """Start its process."""
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        words = [str(self.programs[1]), "-D", "data", "-k", str(self.folder), *settings]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=out, **self.as_user, **popen)

    def answers(self) -> bool:
        """Whether a connection can be made now."""
        engine = create_engine(make_url(self.address).set(drivername="postgresql+psycopg"))
        try:
            engine.connect().close()
        except OperationalError:
            return False
        finally:
            engine.dispose()
        return True

    def stop_at_once(self) -> None:
        """Stop as in a crash: connections break, and nothing more is written."""
        assert self.process is not None
        stop = self.run([str(self.programs[1].with_name("pg_ctl")), "stop", "-D", "data", "-m", "immediate"])
        assert stop.returncode == 0, self.log.read_text()
        self.process.wait(timeout=START_S)

    def require_passwords(self) -> None:
        """From now on, admit `tester` only with the password "right"."""
        engine = create_engine(make_url(self.address).set(drivername="postgresql+psycopg"))
        with engine.begin() as connection:
            connection.execute(text("ALTER USER tester PASSWORD 'right'"))
        rules = "local all all scram-sha-256\n"
        (self.folder / "data" / "pg_hba.conf").write_text(rules)
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_reload_conf()"))
        engine.dispose()

    def run(self, words: list[str]) -> subprocess.CompletedProcess[bytes]:
        with self.log.open("ab") as out:
            return subprocess.run(words, check=False, stdout=out, stderr=out, **self.as_user)

    def end(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)  # do not wait for connected clients
        try:
            self.process.wait(timeout=START_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait()
