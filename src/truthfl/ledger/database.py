"""Database connections of a ledger: read and write transactions, retries, error messages. Imports `errors`.

`sqlite` and `postgresql` create instances of `Database`.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from truthfl.errors import InputError, ServiceError

MAX_ATTEMPTS, MAX_RETRY_S = 100, 60.0
MIN_PAUSE_S, MAX_PAUSE_S = 0.01, 1.0
LOCK_WAIT_S = 10
WRITING = "truthfl_writing"  # execution option of connections that write

_SQLITE_TRANSIENT = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_SQLITE_WRONG_CONTENTS = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR}
_SQLITE_MESSAGES = {
    sqlite3.SQLITE_NOTADB: "it is no SQLite file; name a new file, or one that truthfl wrote",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; put a copy of it in its place",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; name a file in a folder that you may write in",
    sqlite3.SQLITE_READONLY: "you may not write to it; name a file, in a folder, that you may write to",
    sqlite3.SQLITE_FULL: "the disk is full",
}
_POSTGRESQL_WRONG_CONTENTS = "42"  # the class of missing tables and columns
# serialization failure, deadlock, lock not available, too many connections, shutting down, crashed, starting up
_POSTGRESQL_TRANSIENT = {"40001", "40P01", "55P03", "53300", "57P01", "57P02", "57P03"}
_POSTGRESQL_TRANSIENT_MESSAGES = ("too many clients", "connection slots", "is starting up", "is shutting down")

Result = TypeVar("Result")


def retry(database: Database, attempt: Callable[[], Result]) -> Result:
    """The result of `attempt`, called again after transient errors; it must be idempotent."""
    deadline = time.monotonic() + MAX_RETRY_S
    for number in range(MAX_ATTEMPTS):
        try:
            return attempt()
        except UnicodeError:  # SQLite's own messages may quote bytes of a damaged file
            damaged = _SQLITE_MESSAGES[sqlite3.SQLITE_CORRUPT]
            raise InputError(f"{database.name} cannot be used as a ledger: {damaged}.") from None
        except SQLAlchemyError as error:
            reason = _reason(error)
            if not _is_transient(error):
                error_class = InputError if _has_wrong_contents(error) else ServiceError
                raise error_class(f"{database.name} cannot be used as a ledger: {reason}.") from None
        if time.monotonic() > deadline:
            break
        time.sleep(random.uniform(0.0, min(MAX_PAUSE_S, MIN_PAUSE_S * 2**number)))
    raise ServiceError(f"{database.name} is too busy ({reason}); try again later.")


def _is_transient(error: SQLAlchemyError) -> bool:
    if isinstance(error, IntegrityError | PoolTimeoutError):  # another writer was first; no connection is free
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_code(error.orig) in _SQLITE_TRANSIENT
    state = getattr(error.orig, "sqlstate", None)
    message = str(error.orig)
    return state in _POSTGRESQL_TRANSIENT or any(text in message for text in _POSTGRESQL_TRANSIENT_MESSAGES)


def _has_wrong_contents(error: SQLAlchemyError) -> bool:
    """Whether the database can be reached but holds no ledger."""
    cause = getattr(error, "orig", None)
    if isinstance(cause, sqlite3.Error):
        return _sqlite_code(cause) in _SQLITE_WRONG_CONTENTS
    return str(getattr(cause, "sqlstate", None) or "").startswith(_POSTGRESQL_WRONG_CONTENTS)


def _reason(error: SQLAlchemyError) -> str:
    if not isinstance(error, DBAPIError):
        return _first_line(str(error))
    if isinstance(error.orig, sqlite3.Error) and _sqlite_code(error.orig) in _SQLITE_MESSAGES:
        return _SQLITE_MESSAGES[_sqlite_code(error.orig)]
    return _first_line(str(error.orig))


def _sqlite_code(error: sqlite3.Error) -> int:
    """The primary result code, without SQLite's extension."""
    extended: int = getattr(error, "sqlite_errorcode", 0)
    return extended & 0xFF


def _first_line(message: str) -> str:
    lines = message.strip().splitlines() or ["the database gives no reason"]
    return lines[0].strip().rstrip(".")


@dataclass(frozen=True)
class Database:
    """An engine and its transactions.

    name      for error messages
    cleanup   called when the database is closed
    """

    name: str
    engine: Engine
    cleanup: Callable[[], None] = lambda: None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read transaction, with a consistent view of the ledger."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """An exclusive write transaction; when the context ends, the data are on the disk."""
        with self.engine.connect() as connection:
            exclusive = connection.execution_options(**{WRITING: True})
            with exclusive.begin():
                yield exclusive

    def close(self) -> None:
        self.engine.dispose()
        self.cleanup()
