"""A dict that keeps its latest entries only: caches by offer, of a node that stays from job to job."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST_ENTRIES = 2  # a server runs one job at a time; the one before may still be settled


class RecentEntries(dict[Key, Value]):
    """Setting an entry drops the oldest ones above `MOST_ENTRIES`; what is dropped must be possible to make again."""

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        while len(self) > MOST_ENTRIES:
            del self[next(iter(self))]
