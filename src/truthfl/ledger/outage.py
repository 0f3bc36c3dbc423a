"""Waiting for a database that went away: with growing pauses, told once, until it is back or nobody waits any more."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable

from truthfl.errors import ServiceError

MIN_PAUSE_S, MAX_PAUSE_S = 0.1, 5.0
GONE = "the ledger's database does not answer; waiting for it."
BACK = "the ledger's database is back."

Tell = Callable[[str], None]


def tell_on_standard_error(sentence: str) -> None:
    print(f"truthfl: {sentence}", file=sys.stderr, flush=True)


class Outage:
    """What threads that share a database know of its absence: one of them tells that it began, one that it ended."""

    def __init__(self, tell: Tell = tell_on_standard_error) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._told = False
        self._answered = float("-inf")

    def answered_since(self, moment: float) -> bool:
        """Whether the database has answered some thread since then, by the monotonic clock."""
        return self._answered >= moment

    def wait(self, failures: int) -> None:
        """Pause after so many failures in a row, from 1; raise `ServiceError` if waiting was stopped.

        A connection that broke and can be made anew at once is not told: the first failure.
        """
        if failures > 1:
            self._say(GONE, missing=True)
        longest = min(MAX_PAUSE_S, MIN_PAUSE_S * 2 ** min(failures - 1, 10))
        if self._stopped.wait(random.uniform(longest / 2, longest)):
            raise ServiceError("the ledger's database does not answer, and waiting for it was ended.")

    def over(self) -> None:
        """The database has answered."""
        self._answered = time.monotonic()
        if self._told:
            self._say(BACK, missing=False)

    def stop(self) -> None:
        """End the waiting of all threads, now and later."""
        self._stopped.set()

    def _say(self, sentence: str, *, missing: bool) -> None:
        with self._lock:
            if self._told == missing:
                return
            self._told = missing
        self._tell(sentence)
