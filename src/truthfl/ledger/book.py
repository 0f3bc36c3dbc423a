"""The class Ledger: an append-only table of signed entries in SQL, one for each (job, kind, key).

Several threads and processes may append the same entry at the same time, or again after a failure: it is stored once.
If the server of an open ledger's database goes away, reading and appending wait until it is back. Rows that the job's
operator did not sign are in the chain but do not count. A row with the key of an earlier signed row does not count
either.

Each row is checked once and remembered by a keyed hash of all its columns. So a row that is changed under a running
server is checked again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import URL, Connection, CursorResult, Select, func, select, tuple_

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document
from truthfl.ledger.entry import (
    CheckedItem,
    Conflict,
    Entry,
    Item,
    RowKey,
    checked_item,
    entry_after,
    is_row_signed,
    job_row_key,
    new_salt,
    row_key,
    row_line,
)
from truthfl.ledger.signing import PrivateKey, public_line
from truthfl.ledger.sql.database import (
    ENTRIES,
    Database,
    Result,
    Tell,
    create_unless_there,
    missing_guards,
    read_address,
    require_ledger,
    retry,
    retry_through_outages,
    tell_on_standard_error,
)
from truthfl.ledger.sql.engines import postgresql, sqlite_to_read, sqlite_to_write
from truthfl.texts import plain

_columns = attrgetter("sequence", "at", "job", "kind", "key", "payload", "previous", "hash", "salt", "signature")


class RowSignatures:
    """The checked state of one ledger's rows.

    name      the ledger's, for messages
    key       the operator's: rows that it signed count, in any job
    operator  without a key: the public key of the operator whose jobs count; None for the jobs of all operators

    unsigned  by job: how many rows were read that do not count
    """

    def __init__(self, name: str, tell: Tell, key: PrivateKey | None = None, operator: str | None = None) -> None:
        self.name, self.tell = name, tell
        self.unsigned: Counter[str] = Counter()
        self._key: RowKey | None = None if key is None else row_key(key)
        self._line = None if self._key is None else row_line(self._key)
        self._operator = operator if key is None else public_line(key)
        self._line_of: dict[tuple[str, str | None], str] = {}
        self._known: dict[int, bool] = {}

    def of(self, key: PrivateKey) -> RowSignatures:
        """The same ledger's state for the operator with this key."""
        return (
            self
            if self._key is not None and public_line(key) == self._operator
            else RowSignatures(self.name, self.tell, key)
        )

    def required_key(self) -> RowKey:
        """The key to sign with; raise InputError if there is none."""
        if self._key is None:
            raise InputError(f"nothing is written to {self.name} without the operator's key; name it with --key.")
        return self._key

    def note_own(self, entry: Entry) -> None:
        """Remember a row that was just signed here."""
        self._known[_content(entry)] = True

    def is_signed(self, entry: Entry, job_rows: Callable[[], Sequence[Entry]]) -> bool:
        """Whether a row counts; `job_rows` reads the rows that open its job."""
        content = _content(entry)
        if content not in self._known:
            line = self._line or self._found(entry.job, job_rows, self._operator)
            signed = line is not None and is_row_signed(line, entry)
            if not signed and not self._is_of_another(entry, job_rows):
                self._note_unsigned(entry)
            self._known[content] = signed
        return self._known[content]

    def _is_of_another(self, entry: Entry, job_rows: Callable[[], Sequence[Entry]]) -> bool:
        """Whether it is a row of another operator's job."""
        line = None if self._operator is None else self._found(entry.job, job_rows, None)
        return line is not None and line != self._line and is_row_signed(line, entry)

    def _found(self, job: str, job_rows: Callable[[], Sequence[Entry]], operator: str | None) -> str | None:
        """The public row key of a job; only of this operator, unless that is None."""
        if (job, operator) not in self._line_of:
            line = job_row_key(job_rows(), operator)
            if line is None:
                return None
            self._line_of[job, operator] = line
        return self._line_of[job, operator]

    def _note_unsigned(self, entry: Entry) -> None:
        self.unsigned[entry.job] += 1
        if self.unsigned[entry.job] == 1:
            row = plain(f"{entry.kind} {entry.key!r} of job {entry.job}")
            self.tell(
                f"row {entry.sequence} of {self.name}, {row}, is not signed by the job's operator and counts for "
                "nothing; truthfl ledger check says more."
            )


def _content(entry: Entry) -> int:
    return hash(_columns(entry))


KEYS_PER_QUERY = ROWS_PER_QUERY = 500
COLUMNS = tuple(field.name for field in fields(Entry))

Transaction = Callable[[], AbstractContextManager[Connection]]


def open_ledger(where: str | Path, key: PrivateKey | None = None, tell: Tell = tell_on_standard_error) -> Ledger:
    """Open a ledger for writing; create it if it does not exist.

    where   the path of an SQLite file, or postgresql://user@host/database
    key     the operator's: signs what is appended, and only rows that it signed count
    tell    called with a sentence when the database stops answering, when it is back, and when a job has rows that its
            operator did not sign
    """
    address = read_address(where)
    database = postgresql(address, tell, to_write=True) if isinstance(address, URL) else sqlite_to_write(address)
    return _opened(database, create_unless_there, RowSignatures(database.name, tell, key))


def open_for_reading(where: str | Path, operator: str | None = None, tell: Tell = tell_on_standard_error) -> Ledger:
    """Open an existing ledger; nothing is created or changed.

    operator  a public key: only jobs of this operator count. With None, the row that opens a job names its operator
    tell      as in `open_ledger`
    """
    address = read_address(where)
    database = postgresql(address, tell, to_write=False) if isinstance(address, URL) else sqlite_to_read(address)
    return _opened(database, require_ledger, RowSignatures(database.name, tell, operator=operator))


def _opened(database: Database, prepare: Callable[[Database], None], signatures: RowSignatures) -> Ledger:
    try:
        retry(database, lambda: prepare(database))
    except BaseException:
        database.close()
        raise
    return Ledger(database, signatures)


def _append(connection: Connection, items: Sequence[CheckedItem], signatures: RowSignatures) -> list[Entry]:
    head, new = (
        _head(connection, signatures),
        list[Entry](),
    )  # read first: after later rows, no row can follow it again
    entries = {
        entry.unique_key: entry
        for entry in reversed(list(_existing(connection, items)))
        if _is_signed(connection, entry, signatures)
    }
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    if head is not None and _is_signed(connection, head, signatures):  # otherwise anybody could have written its time
        now = max(now, head.at)
    for item in items:
        existing = entries.get(item.unique_key)
        if existing is None:
            head = entries[item.unique_key] = entry_after(head, item, now, new_salt(), signatures.required_key())
            signatures.note_own(head)
            new.append(head)
        elif existing.payload != item.payload:
            raise Conflict(
                f"the ledger already has {item.kind} {item.key!r} of job {item.job!r}, with other contents; "
                "what is in it stays as it is."
            )
    if new:
        connection.execute(ENTRIES.insert(), [{name: getattr(entry, name) for name in COLUMNS} for entry in new])
    return [entries[item.unique_key] for item in items]


def _existing(connection: Connection, items: Sequence[CheckedItem]) -> Iterator[Entry]:
    """The rows with the unique keys of these items, in order."""
    columns = tuple_(ENTRIES.c.job, ENTRIES.c.kind, ENTRIES.c.key)
    for start in range(0, len(items), KEYS_PER_QUERY):
        keys = [item.unique_key for item in items[start : start + KEYS_PER_QUERY]]
        yield from _entries(connection.execute(_genuine().where(columns.in_(keys))))


def _is_signed(connection: Connection, entry: Entry, signatures: RowSignatures) -> bool:
    def job_rows() -> list[Entry]:
        return _entries(connection.execute(_genuine(entry.job, "job")))

    return signatures.is_signed(entry, job_rows)


def _genuine(job: str | None = None, kind: str | None = None) -> Select[Any]:
    """All rows of a job and kind with valid sequence numbers, in order."""
    query = select(ENTRIES).where(ENTRIES.c.sequence > 0).order_by(ENTRIES.c.sequence)
    if job is not None:
        query = query.where(ENTRIES.c.job == job)
    return query if kind is None else query.where(ENTRIES.c.kind == kind)


def _head(connection: Connection, signatures: RowSignatures) -> Entry | None:
    """The last row: a signed one, or one that follows it in unbroken numbering.

    Anybody who can write to the database could add a row with any number, even the greatest possible one.
    """
    query, behind, head, size = _genuine().order_by(None), list[Entry](), None, 1
    while head is None:
        rows = _entries(connection.execute(query.order_by(ENTRIES.c.sequence.desc()).limit(size)))
        head = next((row for row in rows if _is_signed(connection, row, signatures)), None)
        behind += rows if head is None else rows[: rows.index(head)]
        if len(rows) < size:
            break
        query, size = _genuine().order_by(None).where(ENTRIES.c.sequence < rows[-1].sequence), ROWS_PER_QUERY
    for row in reversed(behind):
        if row.sequence != (1 if head is None else head.sequence + 1):
            break
        head = row
    return head


def _entries(rows: CursorResult[Any]) -> list[Entry]:
    return [Entry(**row) for row in rows.mappings()]


class Ledger:
    """An open ledger. Threads may share one; each process must open its own."""

    def __init__(self, database: Database, signatures: RowSignatures) -> None:
        self._database = database
        self._signatures = signatures
        self._process = os.getpid()
        self._open = True

    @property
    def name(self) -> str:
        """Path or address of the ledger, without a password."""
        return self._database.name

    def sign_with(self, key: PrivateKey) -> None:
        """Sign what is appended from now on with this operator's key; only rows that it signed count."""
        self._signatures = self._signatures.of(key)

    def append(self, job: str, kind: str, key: str, payload: Document) -> Entry:
        """The entry with this content, written unless it exists. If the clock went back, it has the last time."""
        return self.append_all([Item(job, kind, key, payload)])[0]

    def append_all(self, items: Sequence[Item]) -> list[Entry]:
        """An entry for each item; missing ones are written in one transaction, all or none."""
        checked, signatures = [checked_item(item) for item in items], self._signatures
        if not checked:
            return []
        return self._do(self._database.writing, lambda connection: _append(connection, checked, signatures))

    def entries(self, job: str | None = None, kind: str | None = None, after: int = 0) -> list[Entry]:
        """Signed entries in the order in which they were written; of several with the same key, the first.

        job, kind   only entries of this job, of this kind
        after       only entries with a greater sequence number
        """
        return self._signed(_genuine(job, kind).where(ENTRIES.c.sequence > after))

    def rows(self, job: str | None = None, after: int | None = None) -> list[Entry]:
        """All rows of the table, signed or not, to check them or for the whole chain; arguments as in `entries`."""
        query = select(ENTRIES).order_by(ENTRIES.c.sequence)
        if after is not None:
            query = query.where(ENTRIES.c.sequence > after)
        if job is not None:
            query = query.where(ENTRIES.c.job == job)
        return self._do(self._database.reading, lambda connection: _entries(connection.execute(query)))

    def find(self, job: str, kind: str, key: str) -> Entry | None:
        """The signed entry with this unique key; None if there is none."""
        rows = self._signed(_genuine(job, kind).where(ENTRIES.c.key == key))
        return rows[0] if rows else None

    def jobs(self) -> list[str]:
        """Names of all jobs with signed entries, oldest first."""
        return [job for job in self.all_jobs() if self.find(job, "job", "job") is not None or self.entries(job)]

    def all_jobs(self) -> list[str]:
        """Names of all jobs with rows, signed or not, oldest first."""
        query = select(ENTRIES.c.job).group_by(ENTRIES.c.job).order_by(func.min(ENTRIES.c.sequence))
        return self._do(self._database.reading, lambda connection: list(connection.scalars(query)))

    def unsigned(self, job: str) -> int:
        """How many rows of the job were read that its operator did not sign."""
        return self._signatures.unsigned[job]

    def _signed(self, query: Select[Any]) -> list[Entry]:
        signatures = self._signatures

        def read(connection: Connection) -> list[Entry]:
            rows = _entries(connection.execute(query))
            return [entry for entry in rows if _is_signed(connection, entry, signatures)]

        return self._do(self._database.reading, read)

    def head(self) -> Entry | None:
        """The last entry, signed or not; rows behind a gap in the numbers do not count."""
        signatures = self._signatures
        return self._do(self._database.reading, lambda connection: _head(connection, signatures))

    def missing_guards(self) -> list[str]:
        """The names of missing triggers that protect rows against changes."""
        return self._do(self._database.reading, missing_guards)

    def stop_waiting(self) -> None:
        """Raise `ServiceError` in threads that wait for an unresponsive database, now and later."""
        self._database.outage.stop()

    def close(self) -> None:
        if self._open and self._process == os.getpid():
            self._open = False
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _do(self, transaction: Transaction, work: Callable[[Connection], Result]) -> Result:
        """Run `work` in a transaction; repeat it after transient errors and when a lost database is back."""
        if self._process != os.getpid():
            raise InputError("this ledger was opened by another process; each must open its own.")
        if not self._open:
            raise InputError(f"the ledger {self.name} is closed; open it again.")

        def attempt() -> Result:
            with transaction() as connection:
                return work(connection)

        return retry_through_outages(self._database, attempt)
