"""Labels in one local SQLite file: every decision a row, none ever changed. Looks at `errors` and `label_state`.

The current label of a sample follows from its rows: the last one that was not undone. The file says so itself, in a
view `labels`, which is all that others read (`learning/handmade.py`). A decision is on the disk before `decide`
returns, and the same decision sent twice, known by its nonce, is one row.
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
from truthfl.samples.label_state import NOTHING, Row, Standing, all_standing, standing

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

ROW = "SELECT number, sample, action, label, undoes FROM decisions"


@dataclass(frozen=True)
class Decision:
    """What she decided about a sample: "label" it so, "skip" it, "flag" or "unflag" it.

    nonce  the page's own name for this decision, the same when it is sent again
    """

    nonce: str
    sample: str
    action: str
    label: str | None = None


@dataclass(frozen=True)
class Kept:
    """A decision on the disk, and where it leaves its sample; `action` is the one that was made or undone."""

    number: int
    sample: str
    action: str
    now: Standing


class LabelStore:
    """The open file. Threads may share it; other processes may read and write the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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

    def decide(self, decision: Decision) -> Kept:
        """Write it down, unless it is written already."""
        with self._writing() as database:
            known = database.execute("SELECT 1 FROM decisions WHERE nonce = ?", (decision.nonce,)).fetchone()
            if known is None:
                _insert(database, decision, "page")
            return self._kept(decision.nonce)

    def undo(self, nonce: str, among: Container[str]) -> Kept | None:
        """Take back the last decision made on the page about one of these samples; None if there is none."""
        with self._writing() as database:
            if database.execute("SELECT 1 FROM decisions WHERE nonce = ?", (nonce,)).fetchone() is None:
                last = "SELECT number, sample FROM standing WHERE how = 'page' ORDER BY number DESC"
                found = next((row for row in database.execute(last) if row[1] in among), None)
                if found is None:
                    return None
                taken_back = "INSERT INTO decisions (nonce, at, how, action, sample, undoes) VALUES (?, ?, ?, ?, ?, ?)"
                database.execute(taken_back, (nonce, _now(), "page", "undo", found[1], found[0]))
            return self._kept(nonce)

    def take_in(self, labels: Mapping[str, str], skipped: Iterable[str] = (), flagged: Iterable[str] = ()) -> int:
        """Labels and marks from elsewhere, all or none; those that are there already are not written again.

        A sample that has a label is not skipped any more. Gives how many labels were written.
        """
        with self._writing() as database:
            before = all_standing(self._rows(f"{ROW} ORDER BY number"))
            new = [one for one in labels.items() if before.get(one[0], NOTHING).label != one[1]]
            made = [Decision(uuid4().hex, sample, "label", label) for sample, label in new]
            made += [Decision(uuid4().hex, one, "skip") for one in skipped if before.get(one, NOTHING) == NOTHING]
            made += [Decision(uuid4().hex, one, "flag") for one in flagged if not before.get(one, NOTHING).flagged]
            for decision in made:
                _insert(database, decision, "import")
            return len(new)

    def standing(self) -> dict[str, Standing]:
        """Where every sample stands that anything was ever decided about."""
        with self._lock, _sentences(self.path):
            return all_standing(self._rows(f"{ROW} ORDER BY number"))

    def recent_times(self, count: int) -> list[datetime]:
        """When the last labels were given on the page, oldest first."""
        asked = "SELECT at FROM decisions WHERE action = 'label' AND how = 'page' ORDER BY number DESC LIMIT ?"
        with self._lock, _sentences(self.path):
            return [datetime.fromisoformat(row[0]) for row in self._database.execute(asked, (count,))][::-1]

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction; it is on the disk when this is left."""
        with self._lock, _sentences(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")

    def _rows(self, query: str, *values: object) -> Iterator[Row]:
        return (Row(*found) for found in self._database.execute(query, values))

    def _kept(self, nonce: str) -> Kept:
        made = next(self._rows(f"{ROW} WHERE nonce = ?", nonce))
        about = made if made.undoes is None else next(self._rows(f"{ROW} WHERE number = ?", made.undoes))
        now = standing(self._rows(f"{ROW} WHERE sample = ? ORDER BY number", made.sample))
        return Kept(made.number, made.sample, about.action, now)

    def _prepare(self) -> None:
        try:
            if self._is_new():
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
            self._database.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise database_error(error, f"{self.path} cannot be used for labels") from None

    def _is_new(self) -> bool:
        """Looked up in one transaction: another process may be making the file right now."""
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
def _sentences(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise database_error(error, f"{path} does not take the labels") from None


def database_error(error: Exception, what: str) -> InputError | ServiceError:
    """The error to raise: a file with other contents is bad input, anything else is the disk or another process."""
    kind = InputError if getattr(error, "sqlite_errorcode", 0) & 0xFF in WRONG_CONTENTS else ServiceError
    return kind(f"{what}: {str(getattr(error, 'strerror', None) or error).rstrip('.')}.")
