"""Database connections of a ledger: read and write transactions, and what is done again after which errors.

`sqlite` and `postgresql` create instances of `Database`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from truthfl.errors import InputError, ServiceError
from truthfl.ledger.database_errors import DAMAGED, is_lost, is_transient, reason, unusable
from truthfl.ledger.outage import Outage

MAX_ATTEMPTS, MAX_RETRY_S = 100, 60.0
MIN_PAUSE_S, MAX_PAUSE_S = 0.01, 1.0
LOCK_WAIT_S = 10
WRITING = "truthfl_writing"  # execution option of connections that write

Result = TypeVar("Result")


def retry(database: Database, attempt: Callable[[], Result]) -> Result:
    """The result of `attempt`, called again after transient errors; it must be idempotent."""
    deadline = time.monotonic() + MAX_RETRY_S
    for number in range(MAX_ATTEMPTS):
        try:
            return attempt()
        except UnicodeError:  # SQLite's own messages may quote bytes of a damaged file
            raise InputError(f"{database.name} cannot be used as a ledger: {DAMAGED}.") from None
        except SQLAlchemyError as error:
            if not is_transient(error):
                raise unusable(database.name, error) from None
            why = reason(error)
        if time.monotonic() > deadline:
            break
        time.sleep(random.uniform(0.0, min(MAX_PAUSE_S, MIN_PAUSE_S * 2**number)))
    raise ServiceError(f"{database.name} is too busy ({why}); try again later.")


def retry_through_outages(database: Database, attempt: Callable[[], Result]) -> Result:
    """As `retry`, for a database that has answered before: if its server goes away, wait until it is back.

    A transaction whose end is not known, since the connection broke while it was committed, is attempted again like
    any other: the attempt reads first what is there.
    """
    failures, first = 0, 0.0  # in a row, and when the first of these attempts began

    def attempt_or_lose() -> Result:
        try:
            return attempt()
        except SQLAlchemyError as error:
            if is_lost(error):
                raise _Lost from None
            raise

    while True:
        began = time.monotonic()
        try:
            result = retry(database, attempt_or_lose)
        except _Lost:
            if not failures or database.outage.answered_since(first):  # in another thread: this is no proof of absence
                failures, first = 0, began
            failures += 1
            database.outage.wait(failures)
        else:
            database.outage.over()
            return result


class _Lost(Exception):  # noqa: N818 - not an error: the database is waited for
    """The connection to the database broke, or could not be made."""


@dataclass(frozen=True)
class Database:
    """An engine and its transactions.

    name      for error messages
    cleanup   called when the database is closed
    outage    whether its server is away, and who is told
    """

    name: str
    engine: Engine
    cleanup: Callable[[], None] = lambda: None
    outage: Outage = field(default_factory=Outage)

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
        self.outage.stop()
        self.engine.dispose()
        self.cleanup()
