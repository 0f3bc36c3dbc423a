"""Refusals that somebody can cause again and again: the 1st, 10th, 100th … of a cause is a row, with their number.

A node that is refused comes back every few seconds, and rows are never deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truthfl.ledger.book import Ledger

OTHER = "other"  # the cause of refusals that have no code


class RefusalRows:
    """Counts the refusals of one job by cause; after a restart it goes on from the last number in the ledger."""

    def __init__(self, ledger: Ledger, job: str) -> None:
        self.ledger, self.job = ledger, job
        self._counts: dict[str, int] | None = None

    def note(self, stage: str, who: str, cause: str, document: Mapping[str, Any]) -> None:
        """Count a refusal; write a row with this document if it is the 1st, 10th, 100th …

        who, cause  whose refusal it is, as far as that is known, and why: a short word, of which there are few
        """
        if self._counts is None:
            self._counts = self._recorded()
        place = f"{stage}/{who}/{cause}"
        number = self._counts[place] = self._counts.get(place, 0) + 1
        if number == 10 ** (len(str(number)) - 1):
            key = f"{place}/{number}"
            self.ledger.append(self.job, "rejection", key, {"stage": stage, **document, "count": number})

    def _recorded(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for entry in self.ledger.entries(self.job, "rejection"):
            if "count" in entry.document:
                place, _, number = entry.key.rpartition("/")
                counts[place] = max(counts.get(place, 0), int(number))
        return counts


def new_of_cause(count: int) -> int:
    """How many refusals a row with this count stands for, beside those of the rows before it."""
    return count - count // 10 if count >= 10 else 1
