"""One contender in a process of its own: `python -m benchmarks.peers.worker CONTENDER WORK-AS-JSON`."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time

BORN = time.perf_counter()
import numpy  # noqa: E402, F401  (everybody needs it, so everybody is charged for it)

WITH_NUMPY = time.perf_counter()


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what frameworks print is not for the driver
    contender = importlib.import_module(f"benchmarks.peers.{sys.argv[1]}")
    from benchmarks.peers.gate import Gate
    from benchmarks.peers.workload import THREADS, Work

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    work = Work(**json.loads(sys.argv[2]))
    others = time.perf_counter() - (WITH_NUMPY - BORN)  # are not charged for what of truthfl the benchmark needs
    born = BORN if sys.argv[1] == "ours" else others
    contender.run(work, Gate(work, replies, born))


if __name__ == "__main__":
    main()
