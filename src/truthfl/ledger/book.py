"""The ledger: an append-only book in SQL, in which everything is said once and nothing is changed.

Any number of threads and processes may write the same thing at the same time, or again after a failure: it is there
once. The table's unique keys see to that; the lock only keeps writers from being in each other's way. Looks at
`entry`, `schema`, `upgrade` and the databases.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import URL, Connection, Result, func, make_url, select, tuple_
from sqlalchemy.exc import ArgumentError

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document
from truthfl.ledger.database import Database, Returned, persistently
from truthfl.ledger.entry import Draft, Entry, Item, draft_of, entry_after
from truthfl.ledger.postgresql import postgresql
from truthfl.ledger.schema import ENTRIES
from truthfl.ledger.sqlite import sqlite_to_read, sqlite_to_write
from truthfl.ledger.upgrade import check_version, upgrade

ASKED_AT_ONCE = 500

Transaction = Callable[[], AbstractContextManager[Connection]]


def open_ledger(where: str | Path) -> Ledger:
    """The ledger in this SQLite file, or at this address of a PostgreSQL database; made if it is not there."""
    found = _address(where)
    database = postgresql(found, to_write=True) if isinstance(found, URL) else sqlite_to_write(found)
    return _opened(database, upgrade)


def open_for_reading(where: str | Path) -> Ledger:
    """The ledger that is there, to be read; nothing is made or changed."""
    found = _address(where)
    database = postgresql(found, to_write=False) if isinstance(found, URL) else sqlite_to_read(found)
    return _opened(database, check_version)


def _opened(database: Database, prepare: Callable[[Database], None]) -> Ledger:
    try:
        persistently(database, lambda: prepare(database))
    except BaseException:
        database.close()
        raise
    return Ledger(database)


def _address(where: str | Path) -> Path | URL:
    if "\0" in str(where):
        raise InputError("the ledger's name has a null character in it; name a file or a database.")
    if isinstance(where, Path) or "://" not in where:
        return Path(where)
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):  # not repeated, since it may hold a password
        raise InputError(
            "the ledger's address cannot be read; it must look like postgresql://user@host/database."
        ) from None
    backend = url.get_backend_name()
    if backend in ("postgresql", "postgres"):
        return url
    if backend == "sqlite" and url.database not in (None, "", ":memory:") and not url.query:
        return Path(str(url.database))
    raise InputError(f"a ledger of the kind {backend!r} is not kept; name a file or postgresql://user@host/database.")


def _append(connection: Connection, drafts: Sequence[Draft]) -> list[Entry]:
    known = {entry.name: entry for entry in _said_already(connection, drafts)}
    head, fresh, now = _head(connection), [], datetime.now(UTC).isoformat(timespec="microseconds")
    for draft in drafts:
        said = known.get(draft.name)
        if said is None:
            head = known[draft.name] = entry_after(head, draft, now)
            fresh.append(head)
        elif said.payload != draft.payload:
            raise Conflict(
                f"the ledger already has {draft.kind} {draft.key!r} of job {draft.job!r}, with other contents; "
                "what is in it stays as it is."
            )
    if fresh:
        connection.execute(ENTRIES.insert(), [asdict(entry) for entry in fresh])
    return [known[draft.name] for draft in drafts]


def _said_already(connection: Connection, drafts: Sequence[Draft]) -> Iterator[Entry]:
    name = tuple_(ENTRIES.c.job, ENTRIES.c.kind, ENTRIES.c.key)
    for start in range(0, len(drafts), ASKED_AT_ONCE):
        names = [draft.name for draft in drafts[start : start + ASKED_AT_ONCE]]
        yield from _entries(connection.execute(select(ENTRIES).where(name.in_(names))))


def _head(connection: Connection) -> Entry | None:
    found = _entries(connection.execute(select(ENTRIES).order_by(ENTRIES.c.sequence.desc()).limit(1)))
    return found[0] if found else None


def _entries(rows: Result[Any]) -> list[Entry]:
    return [Entry(**row) for row in rows.mappings()]


class Conflict(InputError):  # noqa: N818 - a name for what happened
    """What is already in the ledger says something else."""


class Ledger:
    """An open ledger. Threads may share one; processes may not, each opens its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._process = os.getpid()
        self._open = True

    @property
    def name(self) -> str:
        """Where it is, as one may print it."""
        return self._database.name

    def append(self, job: str, kind: str, key: str, payload: Document) -> Entry:
        """The entry that says this: a new one, or the one that says it already."""
        return self.append_all([Item(job, kind, key, payload)])[0]

    def append_all(self, items: Sequence[Item]) -> list[Entry]:
        """An entry for each item, in one transaction: those that are missing are written, all of them or none."""
        drafts = [draft_of(item) for item in items]
        return self._do(self._database.writing, lambda connection: _append(connection, drafts)) if drafts else []

    def entries(self, job: str | None = None, kind: str | None = None, after: int = 0) -> list[Entry]:
        """In the order in which they were written; only those of a job, of a kind, behind a sequence number."""
        asked = select(ENTRIES).order_by(ENTRIES.c.sequence)
        if after:  # otherwise all, even those whose numbers somebody made negative
            asked = asked.where(ENTRIES.c.sequence > after)
        if job is not None:
            asked = asked.where(ENTRIES.c.job == job)
        if kind is not None:
            asked = asked.where(ENTRIES.c.kind == kind)
        return self._do(self._database.reading, lambda connection: _entries(connection.execute(asked)))

    def find(self, job: str, kind: str, key: str) -> Entry | None:
        wanted = (ENTRIES.c.job == job) & (ENTRIES.c.kind == kind) & (ENTRIES.c.key == key)
        asked = select(ENTRIES).where(wanted)
        found = self._do(self._database.reading, lambda connection: _entries(connection.execute(asked)))
        return found[0] if found else None

    def jobs(self) -> list[str]:
        """All that anything is said of, the oldest first."""
        asked = select(ENTRIES.c.job).group_by(ENTRIES.c.job).order_by(func.min(ENTRIES.c.sequence))
        return self._do(self._database.reading, lambda connection: list(connection.scalars(asked)))

    def head(self) -> Entry | None:
        """The last entry."""
        return self._do(self._database.reading, _head)

    def close(self) -> None:
        if self._open and self._process == os.getpid():
            self._open = False
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _do(self, transaction: Transaction, work: Callable[[Connection], Returned]) -> Returned:
        if self._process != os.getpid():
            raise InputError("this ledger was opened by another process; each must open its own.")
        if not self._open:
            raise InputError(f"the ledger {self.name} is closed; open it again.")

        def attempt() -> Returned:
            with transaction() as connection:
                return work(connection)

        return persistently(self._database, attempt)
