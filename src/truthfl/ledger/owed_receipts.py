"""`OwedReceipts`: receipts of an operator's earlier jobs that nobody has said to have kept, and by which key they go.

A row is read once: a ledger may have many receipts, and strangers can have it looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from truthfl.ledger.book import Ledger
from truthfl.ledger.entry import Entry


@dataclass(eq=False)
class OwedReceipts:
    """Those of all jobs but this one, of the same operator."""

    ledger: Ledger
    job: str
    _key_of: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)  # by job and client
    _kept: set[tuple[str, str]] = field(default_factory=set, repr=False)
    _read: dict[str, int] = field(default_factory=dict, repr=False)  # by kind: the last row that was read
    _is_own: dict[str, bool] = field(default_factory=dict, repr=False)  # by job

    def update(self) -> None:
        """Read what was written since the last time; nothing before this job is in the ledger."""
        operator = self._operator_of(self.job)
        if operator is None:
            return
        self._kept |= {(entry.job, entry.key) for entry in self._new("acknowledgement")}
        for entry in self._new("receipt"):
            place = entry.job, entry.key
            if entry.job == self.job or place in self._kept:
                continue
            if entry.job not in self._is_own:
                self._is_own[entry.job] = self._operator_of(entry.job) == operator
            enrolled = self.ledger.find(entry.job, "enrolment", entry.key) if self._is_own[entry.job] else None
            if enrolled is not None:
                self._key_of[place] = str(enrolled.document["public_key"])
        for place in self._kept & self._key_of.keys():
            del self._key_of[place]

    def of_key(self, public_key: str) -> list[tuple[str, str]]:
        """Job and client of each receipt that is owed to the owner of this key, oldest first."""
        return [place for place, key in self._key_of.items() if key == public_key]

    @property
    def people(self) -> list[str]:
        """The names of those who are owed a receipt."""
        return list(dict.fromkeys(client for _, client in self._key_of))

    def _new(self, kind: str) -> list[Entry]:
        entries = self.ledger.entries(kind=kind, after=self._read.get(kind, 0))
        if entries:
            self._read[kind] = entries[-1].sequence
        return entries

    def _operator_of(self, job: str) -> str | None:
        opened = self.ledger.find(job, "job", "job")
        return None if opened is None else str(opened.document.get("operator_key"))
