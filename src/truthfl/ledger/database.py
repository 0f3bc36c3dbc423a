"""The database under a ledger: how one reads, how one writes alone, what is tried again, what is told.

`sqlite` and `postgresql` make such databases. Looks at `errors`.
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

ATTEMPTS, PATIENCE_S = 100, 60.0
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 1.0
LOCK_WAIT_S = 10
WRITING = "truthfl_writing"

_SQLITE_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_SQLITE_WRONG_CONTENTS = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR}
_SQLITE_SENTENCES = {
    sqlite3.SQLITE_NOTADB: "it is no SQLite file; name a new file, or one that truthfl wrote",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; put a copy of it in its place",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; name a file in a folder that you may write in",
    sqlite3.SQLITE_READONLY: "you may not write to it; name a file, in a folder, that you may write to",
    sqlite3.SQLITE_FULL: "the disk is full",
}
_POSTGRESQL_WRONG_CONTENTS = "42"  # the class of missing tables and columns
# serialization failure, deadlock, lock not available, too many connections, shutting down, crashed, starting up
_POSTGRESQL_PASSING = {"40001", "40P01", "55P03", "53300", "57P01", "57P02", "57P03"}
_POSTGRESQL_PASSING_WORDS = ("too many clients", "connection slots", "is starting up", "is shutting down")

Returned = TypeVar("Returned")


def persistently(database: Database, attempt: Callable[[], Returned]) -> Returned:
    """What the attempt gives, tried again while others are in the way. It must be one that may be repeated."""
    latest = time.monotonic() + PATIENCE_S
    for number in range(ATTEMPTS):
        try:
            return attempt()
        except SQLAlchemyError as error:
            reason = _reason(error)
            if not _will_pass(error):
                kind = InputError if _wrong_contents(error) else ServiceError
                raise kind(f"{database.name} cannot be used as a ledger: {reason}.") from None
        if time.monotonic() > latest:
            break
        time.sleep(random.uniform(0.0, min(LONGEST_PAUSE_S, SHORTEST_PAUSE_S * 2**number)))
    raise ServiceError(f"{database.name} is too busy ({reason}); try again later.")


def _will_pass(error: SQLAlchemyError) -> bool:
    if isinstance(error, IntegrityError | PoolTimeoutError):  # somebody wrote this row first; all connections are out
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_code(error.orig) in _SQLITE_PASSING
    state = getattr(error.orig, "sqlstate", None)
    words = str(error.orig)
    return state in _POSTGRESQL_PASSING or any(passing in words for passing in _POSTGRESQL_PASSING_WORDS)


def _wrong_contents(error: SQLAlchemyError) -> bool:
    """Whether the database can be reached and holds something else than a ledger."""
    found = getattr(error, "orig", None)
    if isinstance(found, sqlite3.Error):
        return _sqlite_code(found) in _SQLITE_WRONG_CONTENTS
    return str(getattr(found, "sqlstate", None) or "").startswith(_POSTGRESQL_WRONG_CONTENTS)


def _reason(error: SQLAlchemyError) -> str:
    if not isinstance(error, DBAPIError):
        return _first_line(str(error))
    if isinstance(error.orig, sqlite3.Error) and _sqlite_code(error.orig) in _SQLITE_SENTENCES:
        return _SQLITE_SENTENCES[_sqlite_code(error.orig)]
    return _first_line(str(error.orig))


def _sqlite_code(error: sqlite3.Error) -> int:
    extended: int = getattr(error, "sqlite_errorcode", 0)
    return extended & 0xFF


def _first_line(words: str) -> str:
    lines = words.strip().splitlines() or ["it does not say why"]
    return lines[0].strip().rstrip(".")


@dataclass(frozen=True)
class Database:
    """name: as errors call it; leave: what remains to be done when nobody needs it any more."""

    name: str
    engine: Engine
    leave: Callable[[], None] = lambda: None

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the ledger."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that nobody else writes beside; at its end it is on the disk."""
        with self.engine.connect() as connection:
            alone = connection.execution_options(**{WRITING: True})
            with alone.begin():
                yield alone

    def close(self) -> None:
        self.engine.dispose()
        self.leave()
