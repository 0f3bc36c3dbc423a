"""A ledger in an SQLite file or a PostgreSQL database.

SQLite: readers do not wait for the writer (WAL), a writer takes the lock before it reads (BEGIN IMMEDIATE), and
committed data are on the disk (synchronous=FULL). PostgreSQL: a writer holds an advisory lock until its transaction
ends, and its statements see all earlier commits (READ COMMITTED). If its connection breaks silently, keepalive detects
this. Then the server ends its transaction, so nobody waits for its lock.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event

from truthfl.errors import InputError, ServiceError
from truthfl.files import create_private_file
from truthfl.ledger.sql.database import LOCK_WAIT_S, WRITING, Database, Outage, Tell, shown_url

COPY_ATTEMPTS = 20


def sqlite_to_write(path: Path) -> Database:
    """A database for writing. The file, readable only by its owner, and its folder are created if needed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(f"the folder of {path} cannot be made: {error.strerror}.") from None
    if path.is_dir():
        raise InputError(f"{path} is a folder; a ledger is a file.")
    with suppress(ServiceError):  # SQLite reports what is wrong with the place
        create_private_file(path)
    return Database(str(path), _engine(lambda: connect(path, "mode=rwc", "journal_mode=WAL", "synchronous=FULL")))


def sqlite_to_read(path: Path) -> Database:
    """A database for reading; neither the file nor its folder is changed.

    If another process has the file open, its lock file (-shm) exists, and the file is opened directly. Otherwise SQLite
    would create the lock file, so a temporary copy is opened.
    """
    if not path.is_file():
        raise InputError(f"there is no ledger {path}; name the file that a job wrote.")
    if _with_suffix(path, "-shm").exists():
        return Database(str(path), _engine(lambda: connect(path, "mode=ro", "query_only=ON")))
    folder = tempfile.TemporaryDirectory(prefix="truthfl-ledger-")
    try:
        copy = _consistent_copy(path, Path(folder.name))
    except BaseException:
        folder.cleanup()
        raise
    return Database(str(path), _engine(lambda: connect(copy, "mode=rw", "query_only=ON")), folder.cleanup)


def _consistent_copy(path: Path, folder: Path) -> Path:
    """A copy of the file and its journals; copied again if a process wrote in the meantime."""
    try:
        for _ in range(COPY_ATTEMPTS):
            before = _state(path)
            for suffix in ("", "-wal", "-journal"):
                (folder / f"ledger{suffix}").unlink(missing_ok=True)
                if before[suffix] is not None:
                    shutil.copyfile(_with_suffix(path, suffix), folder / f"ledger{suffix}")
            if before == _state(path):
                return folder / "ledger"
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
    raise ServiceError(f"{path} changes all the time; try again later.")


def _state(path: Path) -> dict[str, tuple[int, int] | None]:
    """Size and modification time of the file and its journals, by suffix; None for those that do not exist."""
    states: dict[str, tuple[int, int] | None] = {}
    for suffix in ("", "-wal", "-journal"):
        try:
            status = _with_suffix(path, suffix).stat()
        except FileNotFoundError:
            states[suffix] = None
        else:
            states[suffix] = (status.st_size, status.st_mtime_ns)
    return states


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


@contextmanager
def copied_and_locked(path: Path, copy: Path) -> Iterator[None]:
    """Copy the ledger in this file to a new file; nobody can add rows to the ledger until the context ends.

    Processes that have it open can continue to read, and wait before they write.
    """
    create_private_file(copy)
    try:
        with (
            closing(connect(path, "mode=rw")) as lock,
            closing(connect(path, "mode=ro")) as source,
            closing(connect(copy, "mode=rw")) as target,
        ):
            lock.execute("BEGIN IMMEDIATE")
            source.backup(target)
            target.execute("PRAGMA journal_mode=DELETE").close()  # one file without companion files
            yield
            lock.execute("ROLLBACK")
    except sqlite3.Error:
        raise ServiceError(f"{path} cannot be copied: it is in use, damaged or the disk is full; try again.") from None


def connect(path: Path, mode: str, *pragmas: str) -> sqlite3.Connection:
    """A connection to this file; `mode` as in SQLite's addresses."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=LOCK_WAIT_S,
        isolation_level=None,  # transactions are begun explicitly, in _begin
        check_same_thread=False,  # the pool gives a connection to one thread at a time
    )
    try:
        connection.text_factory = _text
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}").close()
    except BaseException:
        connection.close()
        raise
    return connection


def _text(raw: bytes) -> str:
    """Decode text; invalid UTF-8 is kept as surrogates, so that the check of the chain reports it."""
    return raw.decode("utf-8", "surrogateescape")


def _engine(connect: Callable[[], sqlite3.Connection]) -> Engine:
    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=QueuePool)
    event.listen(engine, "begin", _begin_in_sqlite)
    return engine


def _begin_in_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get(WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


DRIVER = "postgresql+psycopg"
CONNECTION = {  # of libpq; the address takes precedence
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}
IDLE_S = 20  # a writer that is silent for this time is gone; shorter than other writers wait
LOCK_ID = int.from_bytes(b"truthfl", "big")


def postgresql(url: URL, tell: Tell, *, to_write: bool) -> Database:
    """A database at this address; the first transaction connects to it. `tell` is called when it stops answering."""
    name = shown_url(url)
    try:
        engine = create_engine(
            url.set(drivername=DRIVER),
            isolation_level="READ COMMITTED",
            execution_options={} if to_write else {"postgresql_readonly": True},
            connect_args={name: value for name, value in CONNECTION.items() if name not in url.query},
        )
    except ImportError:
        raise InputError(
            f"{name} needs a driver that is not installed; pip install 'truthfl[postgresql]' installs it."
        ) from None
    event.listen(engine, "begin", _begin_in_postgresql)
    return Database(name, engine, outage=Outage(tell))


def _begin_in_postgresql(connection: Connection) -> None:
    if connection.get_execution_options().get(WRITING, False):
        limits = {"lock_timeout": LOCK_WAIT_S, "idle_in_transaction_session_timeout": IDLE_S}
        settings = ", ".join(f"set_config('{name}', '{seconds}s', true)" for name, seconds in limits.items())
        connection.exec_driver_sql(f"SELECT {settings}, pg_advisory_xact_lock({LOCK_ID})")
