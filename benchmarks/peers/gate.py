"""`Gate`: contenders call it after every round; it measures time and waits for the driver's requests between blocks.

Requests are lines of JSON on standard input: {"rounds": n} trains n more rounds, {"compare": true} returns the largest
distance from truthfl's parameters after the same number of rounds (as a share of their largest change), {"quit": true}
ends. A framework's own loop pauses while the gate waits.
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
    """Writes answers to `replies`, not to standard output, because frameworks print there."""

    def __init__(self, work: Work, replies, born: float) -> None:
        self.work, self.replies, self.born = work, replies, born
        self.import_s = 0.0
        self.left, self.requested, self.done = 0, 0, 0
        self.since = 0.0

    def imported(self) -> None:
        """Stop the clock of the import; the time until the first round counts as preparation."""
        self.import_s = time.perf_counter() - self.born

    def open(self) -> bool:
        """Wait for the first block; return whether to train."""
        self._answer({"import_s": self.import_s})
        return self._listen(None)

    def round_done(self, parameters: Parameters | None = None) -> bool:
        """Count a round and return whether to continue. `parameters` returns flat parameters, in PyTorch's order."""
        return self.rounds_done(1, parameters)

    def rounds_done(self, count: int, parameters: Parameters | None = None) -> bool:
        self.left, self.done = self.left - count, self.done + count
        if self.left > 0:
            return True
        self._answer({"seconds": (time.perf_counter() - self.since) / self.requested})
        return self._listen(parameters)

    def _listen(self, parameters: Parameters | None) -> bool:
        for line in sys.stdin:
            request = json.loads(line)
            if "rounds" in request:
                self.left = self.requested = request["rounds"]
                self.since = time.perf_counter()
                return True
            if "compare" in request:
                self._answer({"distance": self._distance(parameters)})
            else:
                return False
        return False

    def _distance(self, parameters: Parameters | None) -> float | None:
        if parameters is None:
            return None
        ours = self.work.trained(self.done)
        return float(np.abs(parameters() - ours).max() / np.abs(ours - self.work.initial()).max())

    def _answer(self, answer: dict) -> None:
        self.replies.write(json.dumps(answer) + "\n")
        self.replies.flush()
