"""Labels in one local SQLite file: each decision is a row, and rows are never changed. Imports `label_state`, `files`.

The current label of a sample is that of its last row that was not undone; the view `labels` holds it, and
`handmade_labels` reads only that view. A decision is on the disk before `decide` returns; the same decision sent
twice, identified by its nonce, is stored once.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from truthfl.errors import InputError, ServiceError
from truthfl.files import create_private_file
from truthfl.samples.label_state import UNTOUCHED, LabelState, Row, label_state, label_states

FILE_NAME = "labels.db"
VERSION = 1
LOCK_WAIT_S = 10.0
WRONG_CONTENTS = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS decisions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    nonce  TEXT NOT NULL UNIQUE,
    at     TEXT NOT NULL,
    how    TEXT NOT NULL CHECK (how IN ('page', 'import')),
    sample TEXT NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('label', 'skip', 'flag', 'unflag', 'undo')),
    label  TEXT CHECK ((label IS NOT NULL) = (action = 'label')),
    undoes INTEGER UNIQUE REFERENCES decisions CHECK ((undoes IS NOT NULL) = (action = 'undo'))
);
CREATE INDEX IF NOT EXISTS decisions_of_sample ON decisions (sample);
CREATE TRIGGER IF NOT EXISTS no_change BEFORE UPDATE ON decisions
    BEGIN SELECT RAISE(ABORT, 'decisions are only added'); END;
CREATE TRIGGER IF NOT EXISTS no_removal BEFORE DELETE ON decisions
    BEGIN SELECT RAISE(ABORT, 'decisions are only added'); END;
CREATE VIEW IF NOT EXISTS standing AS
    SELECT * FROM decisions AS made WHERE action != 'undo'
    AND NOT EXISTS (SELECT 1 FROM decisions AS undo WHERE undo.undoes = made.number);
CREATE VIEW IF NOT EXISTS labels AS
    SELECT sample, label FROM
        (SELECT sample, label, max(number) FROM standing WHERE action IN ('label', 'skip') GROUP BY sample)
    WHERE label IS NOT NULL;
PRAGMA user_version = {VERSION};
"""

SELECT_ROWS = "SELECT number, sample, action, label, undoes FROM decisions"


@dataclass(frozen=True)
class Decision:
    """A participant's decision about one sample.

    nonce   identifies the decision; the same when it is sent again
    sample  id
    action  "label", "skip", "flag" or "unflag"
    label   name of the class, only with "label"
    """

    nonce: str
    sample: str
    action: str
    label: str | None = None


@dataclass(frozen=True)
class StoredDecision:
    """A decision on the disk, and its sample's state after it; `action` is the one that was made or undone."""

    number: int
    sample: str
    action: str
    state: LabelState


class LabelStore:
    """The open label file. Threads may share one store; other processes may read and write the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            create_private_file(path)
            self._database = sqlite3.connect(
                path, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False, cached_statements=32
            )
        except (OSError, sqlite3.Error) as error:
            raise database_error(error, f"{path} cannot be opened") from None
        try:
            self._prepare()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def decide(self, decision: Decision) -> StoredDecision:
        """Write a decision unless its nonce is stored already."""
        with self._writing() as database:
            stored = database.execute("SELECT 1 FROM decisions WHERE nonce = ?", (decision.nonce,)).fetchone()
            if stored is None:
                _insert(database, decision, "page")
            return self._stored(decision.nonce)

    def undo(self, nonce: str, samples: Container[str]) -> StoredDecision | None:
        """Undo the last decision made on the page about one of these samples; None if there is none."""
        with self._writing() as database:
            if database.execute("SELECT 1 FROM decisions WHERE nonce = ?", (nonce,)).fetchone() is None:
                latest_first = "SELECT number, sample FROM standing WHERE how = 'page' ORDER BY number DESC"
                last = next((row for row in database.execute(latest_first) if row[1] in samples), None)
                if last is None:
                    return None
                insert = "INSERT INTO decisions (nonce, at, how, action, sample, undoes) VALUES (?, ?, ?, ?, ?, ?)"
                database.execute(insert, (nonce, _now(), "page", "undo", last[1], last[0]))
            return self._stored(nonce)

    def add_imported(self, labels: Mapping[str, str], skipped: Iterable[str] = (), flagged: Iterable[str] = ()) -> int:
        """Write imported labels, skips and flags, all or none; return how many labels were written.

        Those that are stored already are not written again. A sample that has a label is not skipped.
        """
        with self._writing() as database:
            before = label_states(self._rows(f"{SELECT_ROWS} ORDER BY number"))
            new_labels = [item for item in labels.items() if before.get(item[0], UNTOUCHED).label != item[1]]
            new_skips = [sample for sample in skipped if before.get(sample, UNTOUCHED) == UNTOUCHED]
            new_flags = [sample for sample in flagged if not before.get(sample, UNTOUCHED).flagged]
            decisions = [Decision(uuid4().hex, sample, "label", label) for sample, label in new_labels]
            decisions += [Decision(uuid4().hex, sample, "skip") for sample in new_skips]
            decisions += [Decision(uuid4().hex, sample, "flag") for sample in new_flags]
            for decision in decisions:
                _insert(database, decision, "import")
            return len(new_labels)

    def states(self) -> dict[str, LabelState]:
        """State of every sample with at least one decision, by sample id."""
        with self._lock, _truthfl_errors(self.path):
            return label_states(self._rows(f"{SELECT_ROWS} ORDER BY number"))

    def recent_times(self, count: int) -> list[datetime]:
        """Times of the last `count` labels given on the page, oldest first."""
        query = "SELECT at FROM decisions WHERE action = 'label' AND how = 'page' ORDER BY number DESC LIMIT ?"
        with self._lock, _truthfl_errors(self.path):
            return [datetime.fromisoformat(row[0]) for row in self._database.execute(query, (count,))][::-1]

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction, on the disk when the context ends without an error."""
        with self._lock, _truthfl_errors(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def _rows(self, query: str, *values: object) -> Iterator[Row]:
        return (Row(*record) for record in self._database.execute(query, values))

    def _stored(self, nonce: str) -> StoredDecision:
        row = next(self._rows(f"{SELECT_ROWS} WHERE nonce = ?", nonce))
        undone = None if row.undoes is None else next(self._rows(f"{SELECT_ROWS} WHERE number = ?", row.undoes))
        state = label_state(self._rows(f"{SELECT_ROWS} WHERE sample = ? ORDER BY number", row.sample))
        return StoredDecision(row.number, row.sample, (undone or row).action, state)

    def _prepare(self) -> None:
        try:
            if self._is_new():
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
            self._database.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise database_error(error, f"{self.path} cannot be used for labels") from None

    def _is_new(self) -> bool:
        """Whether the file has no tables yet; in one transaction, since another process may be creating them."""
        self._database.execute("BEGIN IMMEDIATE")
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        tables = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        self._database.execute("ROLLBACK")
        if version not in (0, VERSION) or (version == 0 and tables):
            raise InputError(f"{self.path} is another program's file, or a newer version's; name another folder.")
        return bool(version == 0)


def _insert(database: sqlite3.Connection, decision: Decision, how: str) -> None:
    database.execute(
        "INSERT INTO decisions (nonce, at, how, sample, action, label) VALUES (?, ?, ?, ?, ?, ?)",
        (decision.nonce, _now(), how, decision.sample, decision.action, decision.label),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def _truthfl_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into `InputError` or `ServiceError`."""
    try:
        yield
    except sqlite3.Error as error:
        raise database_error(error, f"{path} does not take the labels") from None


def database_error(error: Exception, what: str) -> InputError | ServiceError:
    """`InputError` if the file has other contents, `ServiceError` otherwise; `what` begins its message."""
    error_class = InputError if getattr(error, "sqlite_errorcode", 0) & 0xFF in WRONG_CONTENTS else ServiceError
    return error_class(f"{what}: {str(getattr(error, 'strerror', None) or error).rstrip('.')}.")
