"""Labels in one local SQLite file: each decision is a row, and rows are never changed.

A sample's current label is in its last row that was not undone. The view `labels` holds the current labels, and
`handmade_labels` reads only that view. A decision is on the disk before `decide` returns. Its nonce identifies it, so a
decision that is sent twice is stored once. Decisions that were made together, such as an import, are one step: they
have the same `step`, and are undone together.

This module does not load NumPy, so that the page starts at once.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from uuid import uuid4

from truthfl.errors import InputError, ServiceError
from truthfl.files import create_private_file, make_private_folder
from truthfl.learning.data.class_sets import are_known
from truthfl.texts import plain

VERSION = 2  # SQLite keeps it in the file

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS decisions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    nonce  TEXT NOT NULL UNIQUE,
    at     TEXT NOT NULL,
    how    TEXT NOT NULL CHECK (how IN ('page', 'import')),
    sample TEXT NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('label', 'skip', 'flag', 'unflag', 'undo')),
    label  TEXT CHECK ((label IS NOT NULL) = (action = 'label')),
    undoes INTEGER UNIQUE REFERENCES decisions CHECK ((undoes IS NOT NULL) = (action = 'undo')),
    step   TEXT
);
CREATE INDEX IF NOT EXISTS decisions_of_step ON decisions (step) WHERE step IS NOT NULL;
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


def prepare(database: sqlite3.Connection, path: Path) -> None:
    """Create the tables if there are none; `path` is the file's path, for messages."""
    if _is_new(database, path):
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
    database.execute("PRAGMA synchronous = FULL")


def _is_new(database: sqlite3.Connection, path: Path) -> bool:
    """Whether there are no tables; checked in one transaction, since another process may be creating them."""
    database.execute("BEGIN IMMEDIATE")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    database.execute("ROLLBACK")
    if version not in (0, VERSION) or (version == 0 and tables):
        raise InputError(f"{path} is another program's file, or another version's; name another folder.")
    return not tables


class Row(NamedTuple):
    """A decision as stored in the table; `undoes` is the number of the decision that it undoes, if any."""

    number: int
    sample: str
    action: str
    label: str | None
    undoes: int | None


class LabelState(NamedTuple):
    """State of one sample.

    label    name of its class; None while it is not labeled
    skipped  number of the decision that skipped it; None if it is not skipped
    """

    label: str | None = None
    skipped: int | None = None
    flagged: bool = False


UNTOUCHED = LabelState()


def label_state(rows: Iterable[Row]) -> LabelState:
    """State of one sample, from its rows in order. The later of label and skip counts; undone decisions do not."""
    decisions = list(rows)
    undone = {row.undoes for row in decisions if row.undoes is not None}
    label, skipped, flagged = None, None, False
    for row in decisions:
        if row.number in undone or row.action == "undo":
            continue
        if row.action == "label":
            label, skipped = row.label, None
        elif row.action == "skip":
            label, skipped = None, row.number
        else:
            flagged = row.action == "flag"
    return LabelState(label, skipped, flagged)


def label_states(rows: Iterable[Row]) -> dict[str, LabelState]:
    """State of every sample in these rows, by sample id; the rows must be in order."""
    by_sample: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_sample[row.sample].append(row)
    return {sample: label_state(decisions) for sample, decisions in by_sample.items()}


LABELS_FILE = "labels.db"
LOCK_WAIT_S = 10.0
WRONG_CONTENTS = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)

SELECT_ROWS = "SELECT number, sample, action, label, undoes FROM decisions"


class Decision(NamedTuple):
    """A participant's decision about one sample.

    nonce   identifies the decision; stays the same when the decision is sent again
    sample  id
    action  "label", "skip", "flag" or "unflag"
    label   name of the class, only with "label"
    """

    nonce: str
    sample: str
    action: str
    label: str | None = None


class StoredDecision(NamedTuple):
    """A stored decision, and its sample's state after it.

    action  the action that was made or undone
    also    for a step of several decisions: the states of the other samples, by id
    """

    number: int
    sample: str
    action: str
    state: LabelState
    also: Mapping[str, LabelState] = MappingProxyType({})


class LabelConflictError(InputError):
    """Samples have other labels than the caller expected; nothing was stored. `states`: the current states."""

    def __init__(self, states: Mapping[str, LabelState]) -> None:
        super().__init__("the label was changed elsewhere in the meantime; nothing was stored.")
        self.states = states


Agrees = Callable[[str, LabelState], bool]  # whether a sample's state is what the caller expected


class LabelStore:
    """The open label file. Threads may share one store; other processes may read and write the same file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        make_private_folder(path.parent)
        try:
            create_private_file(path)
            self._database = sqlite3.connect(
                path, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False, cached_statements=32
            )
        except (OSError, sqlite3.Error) as error:
            raise database_error(error, f"{path} cannot be opened") from None
        try:
            prepare(self._database, path)
        except sqlite3.Error as error:
            self._database.close()
            raise database_error(error, f"{path} cannot be used for labels") from None
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._database.close()

    def decide(self, decision: Decision, agrees: Agrees | None = None) -> StoredDecision:
        """Write a decision unless its nonce is stored already; `LabelConflictError` if `agrees` says no."""
        with self._writing() as database:
            if not self._has(decision.nonce):
                self._require_agreement([decision.sample], agrees)
                _insert(database, decision, "page")
            return self._stored(decision.nonce)

    def decide_together(self, nonce: str, labels: Mapping[str, str], agrees: Agrees) -> StoredDecision:
        """Give several samples these labels as one step, all or none; do nothing if the nonce is stored already."""
        with self._writing() as database:
            if not self._has(nonce):
                self._require_agreement(labels, agrees)
                for number, (sample, label) in enumerate(labels.items()):
                    _insert(database, Decision(f"{nonce}/{number}", sample, "label", label), "page", nonce)
            return self._stored(nonce)

    def undo(self, nonce: str, samples: Container[str]) -> StoredDecision | None:
        """Undo the last step with a decision about one of these samples; None if there is none.

        A step is one decision on the page, several decisions made together, or an import.
        """
        with self._writing() as database:
            if not self._has(nonce):
                steps = "SELECT number, sample, step FROM standing WHERE how = 'page' OR step IS NOT NULL"
                latest_first = database.execute(f"{steps} ORDER BY number DESC")
                last = next((row for row in latest_first if row[1] in samples), None)
                if last is None:
                    return None
                rows = [last]
                if last[2] is not None:
                    whole = "SELECT number, sample FROM standing WHERE step = ? ORDER BY number"
                    rows = database.execute(whole, (last[2],)).fetchall()
                for number, row in enumerate(rows):
                    database.execute(
                        "INSERT INTO decisions (nonce, at, how, action, sample, undoes, step)"
                        " VALUES (?, ?, 'page', 'undo', ?, ?, ?)",
                        (nonce if last[2] is None else f"{nonce}/{number}", _now(), row[1], row[0], last[2] and nonce),
                    )
            return self._stored(nonce)

    def differing(self, labels: Mapping[str, str]) -> frozenset[str]:
        """Those of these samples that now have a different label."""
        return _differing(self.states(), labels)

    def add_imported(
        self,
        labels: Mapping[str, str],
        skipped: Iterable[str] = (),
        flagged: Iterable[str] = (),
        *,
        replacing: Collection[str] = (),
    ) -> int:
        """Write imported labels, skips and flags as one step, all or none; return how many labels were written.

        Decisions that are stored already are not written again. A sample with a label is not skipped.

        replacing  samples whose present label may be replaced; `LabelConflictError` if any other has a different label
        """
        with self._writing() as database:
            before = label_states(self._rows(f"{SELECT_ROWS} ORDER BY number"))
            unexpected = _differing(before, labels).difference(replacing)
            if unexpected:
                raise LabelConflictError({sample: before[sample] for sample in unexpected})
            new_labels = [item for item in labels.items() if before.get(item[0], UNTOUCHED).label != item[1]]
            new_skips = [sample for sample in skipped if before.get(sample, UNTOUCHED) == UNTOUCHED]
            new_flags = [sample for sample in flagged if not before.get(sample, UNTOUCHED).flagged]
            decisions = [Decision(uuid4().hex, sample, "label", label) for sample, label in new_labels]
            decisions += [Decision(uuid4().hex, sample, "skip") for sample in new_skips]
            decisions += [Decision(uuid4().hex, sample, "flag") for sample in new_flags]
            step = uuid4().hex
            for decision in decisions:
                _insert(database, decision, "import", step)
            return len(new_labels)

    def states(self) -> dict[str, LabelState]:
        """State of every sample with at least one decision, by sample id."""
        with self._lock, _truthfl_errors(self.path):
            return label_states(self._rows(f"{SELECT_ROWS} ORDER BY number"))

    def recent_times(self, count: int) -> list[datetime]:
        """Times of the last `count` labels that were given one by one on the page, oldest first."""
        chosen = "action = 'label' AND how = 'page' AND step IS NULL"
        query = f"SELECT at FROM decisions WHERE {chosen} ORDER BY number DESC LIMIT ?"
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

    def _has(self, nonce: str) -> bool:
        """Whether a decision or a step with this nonce is stored."""
        found = self._database.execute("SELECT 1 FROM decisions WHERE nonce = ? OR step = ?", (nonce, nonce))
        return found.fetchone() is not None

    def _state(self, sample: str) -> LabelState:
        return label_state(self._rows(f"{SELECT_ROWS} WHERE sample = ? ORDER BY number", sample))

    def _require_agreement(self, samples: Iterable[str], agrees: Agrees | None) -> None:
        states = {sample: self._state(sample) for sample in samples} if agrees is not None else {}
        others = {sample: state for sample, state in states.items() if agrees is not None and not agrees(sample, state)}
        if others:
            raise LabelConflictError(others)

    def _stored(self, nonce: str) -> StoredDecision:
        row, *others = self._rows(f"{SELECT_ROWS} WHERE nonce = ? OR step = ? ORDER BY number", nonce, nonce)
        undone = None if row.undoes is None else next(self._rows(f"{SELECT_ROWS} WHERE number = ?", row.undoes))
        also = {other.sample: self._state(other.sample) for other in others if other.sample != row.sample}
        return StoredDecision(row.number, row.sample, (undone or row).action, self._state(row.sample), also)


def _differing(states: Mapping[str, LabelState], labels: Mapping[str, str]) -> frozenset[str]:
    """Samples whose label differs from this one."""
    return frozenset(
        sample for sample, label in labels.items() if states.get(sample, UNTOUCHED).label not in (None, label)
    )


def _insert(database: sqlite3.Connection, decision: Decision, how: str, step: str | None = None) -> None:
    database.execute(
        "INSERT INTO decisions (nonce, at, how, sample, action, label, step) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (decision.nonce, _now(), how, decision.sample, decision.action, decision.label, step),
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
    """The error: `InputError` if the file has other contents, `ServiceError` otherwise; `what` begins its message."""
    error_class = InputError if getattr(error, "sqlite_errorcode", 0) & 0xFF in WRONG_CONTENTS else ServiceError
    return error_class(f"{what}: {str(getattr(error, 'strerror', None) or error).rstrip('.')}.")


SHOWN_CLASSES = 5

Other = Mapping[str, int]  # by class: number of labels


def label_names(path: str | os.PathLike[str]) -> dict[str, str]:
    """The name of each sample's label, by sample; empty if there is no file."""
    file = Path(path)
    if not file.exists():
        return {}
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=LOCK_WAIT_S)) as database:
            return dict(database.execute("SELECT sample, label FROM labels"))
    except sqlite3.Error as error:
        raise database_error(error, f"{file} cannot be read as a file of labels") from None


def other_labels(
    path: str | os.PathLike[str],
    classes: Sequence[str],
    samples: Sequence[str] | None = None,
    *,
    several: bool = False,
) -> Other:
    """The number of labels of each class that is not among these, the most frequent first.

    samples   ids; None for all in the file
    """
    names = label_names(path)
    chosen = names.values() if samples is None else (names[sample] for sample in samples if sample in names)
    known = set(classes)
    return dict(Counter(label for label in chosen if not are_known(label, known, several=several)).most_common())


def other_labels_in_words(other: Other, classes: Sequence[str]) -> str:
    """A sentence that names the labels of other classes."""
    count, listed = sum(other.values()), ", ".join(list(other)[:SHOWN_CLASSES])
    more = f" and {len(other) - SHOWN_CLASSES} more" if len(other) > SHOWN_CLASSES else ""
    named = ", ".join(classes[:SHOWN_CLASSES]) + (", …" if len(classes) > SHOWN_CLASSES else "")
    are = "label is of a class that is" if count == 1 else "labels are of classes that are"
    return (
        f"{count:,} {are} not among {plain(named, 300)}: {plain(listed, 300)}{more}. They are kept, and their samples "
        "count as not labeled until they get another label."
    )
