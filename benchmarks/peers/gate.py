"""The gate that a contender passes after every round: it keeps the time and waits for the driver between blocks.

The driver's lines: {"rounds": n} asks for n more rounds, {"compare": true} for the distance from truthfl's parameters
after as many rounds (the largest, as a share of the largest way from the start), {"quit": true} for the end. So blocks
of different contenders can take turns, each in its own process, and whatever loop a framework brings stands still
meanwhile.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.peers.workload import Work

Parameters = Callable[[], np.ndarray]


class Gate:
    """`replies` is where the driver listens; standard output is not, for frameworks write there."""

    def __init__(self, work: Work, replies, born: float) -> None:
        self.work, self.replies, self.born = work, replies, born
        self.import_s = 0.0
        self.left, self.asked, self.done = 0, 0, 0
        self.since = 0.0

    def imported(self) -> None:
        """Everything is imported; what follows, up to the first round, is preparing the data."""
        self.import_s = time.perf_counter() - self.born

    def open(self) -> bool:
        """Everything is prepared: wait for the first block."""
        self._say({"import_s": self.import_s})
        return self._listen(None)

    def round_done(self, parameters: Parameters | None = None) -> bool:
        """A round is over; whether to go on. `parameters` returns them flat, in PyTorch's order."""
        return self.rounds_done(1, parameters)

    def rounds_done(self, count: int, parameters: Parameters | None = None) -> bool:
        self.left, self.done = self.left - count, self.done + count
        if self.left > 0:
            return True
        self._say({"seconds": (time.perf_counter() - self.since) / self.asked})
        return self._listen(parameters)

    def _listen(self, parameters: Parameters | None) -> bool:
        for line in sys.stdin:
            wish = json.loads(line)
            if "rounds" in wish:
                self.left = self.asked = wish["rounds"]
                self.since = time.perf_counter()
                return True
            if "compare" in wish:
                self._say({"distance": self._distance(parameters)})
            else:
                return False
        return False

    def _distance(self, parameters: Parameters | None) -> float | None:
        if parameters is None:
            return None
        ours = self.work.trained(self.done)
        return float(np.abs(parameters() - ours).max() / np.abs(ours - self.work.initial()).max())

    def _say(self, what: dict) -> None:
        self.replies.write(json.dumps(what) + "\n")
        self.replies.flush()
