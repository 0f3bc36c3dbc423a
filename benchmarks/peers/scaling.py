"""The time of a round of `train` by number of clients, batch, runs and filters; exponents of growth. Prints JSON.

Each axis starts from ten clients, batch 50, eight filters, one run (for the runs: two, one per thread).
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from benchmarks.peers.workload import SEED, THREADS, Work
from truthfl import Strategies
from truthfl.learning.training.train import train

AXES = {
    "clients": (10, 30, 100, 300, 1000),
    "batch": (10, 30, 100, 300, 1000),
    "runs": (2, 4, 8, 16, 32),
    "filters": (4, 8, 16, 32, 64),
}
TIMING_SECONDS = 0.1  # approximate duration of one timing


class Point:
    """One setting and its shortest time so far."""

    def __init__(self, axis: str, value: int, images: int, data) -> None:
        changed = {} if axis == "runs" else {axis: value}
        self.work = Work(**{"clients": 10, "images": images, **changed})
        self.data, self.runs = data, value if axis == "runs" else 1
        self.honest = Strategies.truthful(np.full(self.work.clients, self.work.batch))
        self.best, self.rounds = float("inf"), 2
        self.rounds = max(2, min(100, round(TIMING_SECONDS / self.time())))
        self.best = float("inf")

    def time(self) -> float:
        """Time the setting once; return the shortest seconds per round so far."""
        federated = self.work.federated(self.rounds, data=self.data)
        seeds = np.arange(SEED, SEED + self.runs)
        start = time.perf_counter()
        train(federated, self.honest, seeds, threads=THREADS)
        self.best = min(self.best, (time.perf_counter() - start) / self.rounds)
        return self.best


def main() -> None:
    images, repeats, points = (int(word) for word in sys.argv[1:])
    data, result = Work(clients=10, images=images).data(), {}
    for axis, values in AXES.items():
        measured = [Point(axis, value, images, data) for value in values[:points]]
        for _ in range(repeats):
            for point in measured:
                point.time()
        times = [point.best for point in measured]
        slope = float(np.polyfit(np.log(values[:points]), np.log(times), 1)[0])
        result[axis] = {"values": values[:points], "ms": [1e3 * t for t in times], "exponent": slope}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
