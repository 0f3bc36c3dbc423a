"""A ledger in one SQLite file: opened to write, or to read without touching anything. Looks at `database`.

Readers do not wait for the writer (WAL), a writer takes the lock before it reads (BEGIN IMMEDIATE), and what was
committed is on the disk (synchronous=FULL): an append takes as long as the disk takes for one flush.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event

from truthfl.errors import InputError, ServiceError
from truthfl.ledger.database import LOCK_WAIT_S, WRITING, Database

COPY_ATTEMPTS = 20


def sqlite_to_write(path: Path) -> Database:
    """The file is made if it is not there, and its folder too."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(f"the folder of {path} cannot be made: {error.strerror}.") from None
    if path.is_dir():
        raise InputError(f"{path} is a folder; a ledger is a file.")
    return Database(str(path), _engine(lambda: _connect(path, "mode=rwc", "journal_mode=WAL", "synchronous=FULL")))


def sqlite_to_read(path: Path) -> Database:
    """Neither the file nor its folder is changed.

    Where others have it open, so that the file of their locks is there, we read beside them. Where nobody has, SQLite
    would make that file; so we read a copy.
    """
    if not path.is_file():
        raise InputError(f"there is no ledger {path}; name the file that a job wrote.")
    if _beside(path, "-shm").exists():
        return Database(str(path), _engine(lambda: _connect(path, "mode=ro", "query_only=ON")))
    folder = tempfile.TemporaryDirectory(prefix="truthfl-ledger-")
    try:
        copy = _copy_at_rest(path, Path(folder.name))
    except BaseException:
        folder.cleanup()
        raise
    return Database(str(path), _engine(lambda: _connect(copy, "mode=rw", "query_only=ON")), folder.cleanup)


def _copy_at_rest(path: Path, folder: Path) -> Path:
    """A copy of the file with what was not yet moved into it; taken again if somebody wrote meanwhile."""
    try:
        for _ in range(COPY_ATTEMPTS):
            before = _state(path)
            for suffix in ("", "-wal", "-journal"):
                (folder / f"ledger{suffix}").unlink(missing_ok=True)
                if before[suffix] is not None:
                    shutil.copyfile(_beside(path, suffix), folder / f"ledger{suffix}")
            if before == _state(path):
                return folder / "ledger"
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
    raise ServiceError(f"{path} changes all the time; try again later.")


def _state(path: Path) -> dict[str, tuple[int, int] | None]:
    found: dict[str, tuple[int, int] | None] = {}
    for suffix in ("", "-wal", "-journal"):
        try:
            seen = _beside(path, suffix).stat()
        except FileNotFoundError:
            found[suffix] = None
        else:
            found[suffix] = (seen.st_size, seen.st_mtime_ns)
    return found


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _connect(path: Path, mode: str, *pragmas: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}",
        uri=True,
        timeout=LOCK_WAIT_S,
        isolation_level=None,  # transactions begin where we say so
        check_same_thread=False,  # the pool hands a connection to one thread at a time
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
    """Damaged text comes through, for the check of the chain to find."""
    return raw.decode("utf-8", "surrogateescape")


def _engine(connect: Callable[[], sqlite3.Connection]) -> Engine:
    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=QueuePool)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    alone = connection.get_execution_options().get(WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if alone else "BEGIN")
