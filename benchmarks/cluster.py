"""The same verification by one process, by two, and by a Ray cluster on this machine: seconds, and a result digest.

    python -m benchmarks.cluster [ray://HOST:PORT]

With an address, that cluster computes instead of one that is started here. The digest covers all results to the last
bit, as `truthfl verify --json` prints them. Needs Ray: pip install 'truthfl[cluster]'.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stdout
from pathlib import Path

from truthfl.cli.output import print_json
from truthfl.job import DataJob
from truthfl.job.job_file import job_of_text
from truthfl.studies.cluster.workers import RayWorkers
from truthfl.studies.verify.job_verification import verify_job
from truthfl.studies.work import WorkerPool, Workers

JOB = """
[data]
source = "digits"
pilot_samples = 600
test_samples = 400

[model]
kind = "softmax"

[training]
rounds = 40

[server]
loss_value = 20000.0
test_samples = 2000

[clients]
name = ["Ada", "Ben", "Cleo", "Dora"]
dataset_size = [120, 120, 150, 90]
label_cost = [1.0, 1.0, 1.2, 1.0]
sample_cost = 0.001
"""


def verified(job: DataJob, workers: Workers) -> tuple[float, str]:
    """The seconds of one verification, and the digest of its results."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        found = verify_job(job, Path(folder), quick=True, workers=workers)
        seconds = time.monotonic() - started
    text = io.StringIO()
    with redirect_stdout(text):
        print_json(found.verdicts)
    return seconds, hashlib.sha256(text.getvalue().encode()).hexdigest()[:12]


def main(on: str) -> None:
    job = job_of_text(JOB, Path())
    assert isinstance(job, DataJob)
    ways: dict[str, Callable[[], AbstractContextManager[Workers]]] = {
        "1 process": lambda: WorkerPool(1),
        "2 processes": lambda: WorkerPool(2),
        f"--on {on}": lambda: RayWorkers(on),
    }
    print("| verify --quick by | to connect | seconds | of one process | found |\n|---|---|---|---|---|")
    first = None
    for name, make in ways.items():
        started = time.monotonic()
        with make() as workers:
            connected = time.monotonic() - started
            seconds, digest = verified(job, workers)
        first = first or seconds
        print(f"| {name} | {connected:.1f} | {seconds:.1f} | {seconds / first:.2f} | {digest} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("on", nargs="?", default="ray", help="as in truthfl verify --on")
    main(parser.parse_args().on)
