"""Runs one contender in this process: `python -m benchmarks.peers.worker CONTENDER WORK-AS-JSON`."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time

BORN = time.perf_counter()
import numpy  # noqa: E402, F401  (all contenders need it, so its import counts for all)

WITH_NUMPY = time.perf_counter()


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of frameworks goes to standard error
    contender = importlib.import_module(f"benchmarks.peers.{sys.argv[1]}")
    from benchmarks.peers.gate import Gate
    from benchmarks.peers.workload import THREADS, Work

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    work = Work(**json.loads(sys.argv[2]))
    without_truthfl = time.perf_counter() - (WITH_NUMPY - BORN)  # the import of truthfl does not count for the others
    born = BORN if sys.argv[1] == "ours" else without_truthfl
    contender.run(work, Gate(work, replies, born))


if __name__ == "__main__":
    main()
