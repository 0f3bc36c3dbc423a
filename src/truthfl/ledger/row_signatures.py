"""`RowSignatures`: which rows of an open ledger count, since the operator of their job signed them.

Each row is looked at once: what was found is remembered by a keyed hash of all its columns, so that a row that is
changed under a running server is looked at again. A row with the key of an earlier signed one counts for nothing too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter

from truthfl.errors import InputError
from truthfl.ledger.entry import Entry
from truthfl.ledger.outage import Tell
from truthfl.ledger.row_keys import RowKey, is_row_signed, job_row_key, row_key, row_line
from truthfl.ledger.signing import PrivateKey, public_line
from truthfl.texts import plain

_columns = attrgetter("sequence", "at", "job", "kind", "key", "payload", "previous", "hash", "salt", "signature")


class RowSignatures:
    """What is known of one ledger's rows.

    name      the ledger's, for messages
    key       the operator's: rows that it signed count, whatever their job is
    operator  without a key: the public key of the operator whose jobs count; None for the jobs of all

    unsigned  by job: how many rows were read that count for nothing
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
        """The same ledger's for the operator with this key."""
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
        """Whether a row counts; `job_rows` reads those of its job that open one."""
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
        """The public row key of a job; of this operator, unless that is None."""
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
