"""Time and memory of `truthfl run` with many simulated clients, including the plan.

    python -m benchmarks.many_clients [--clients 1000] [--rounds 30] [--participation 1] [--dishonest 0]
                                      [--folder FOLDER] [--json]

The job is written to a folder and run by another process: MNIST digits, 200 samples per client, softmax regression, the
default contract, and a value of a unit of loss at which all clients are worth asking. Reports are masked if all clients
are asked in all rounds. With --participation 0.05, each is asked in a twentieth of them, and reports are not masked.
Seconds are wall-clock time and processor time of all cores; memory is the largest resident set. The folder is removed
afterwards unless you name it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIES = ("whisperer", "lazy labeler", "few labels", "echo")


def job_text(clients: int, rounds: int, dishonest: int, participation: float = 1.0) -> str:
    """A job file with this many dishonest clients, evenly spaced, and this participation."""
    behaviour = ["truthful"] * clients
    for k in range(dishonest):
        behaviour[k * clients // dishonest] = LIES[k % len(LIES)]
    return f"""
[data]
source = "mnist"
pilot_samples = 2000
test_samples = 1000

[training]
rounds = {rounds}

[server]
loss_value = {500.0 * clients**2}
test_samples = 10000
most_pay = 100.0

[clients]
dataset_size = {json.dumps([200] * clients)}
label_cost = 1.0
sample_cost = 0.0006
participation = {participation}
behaviour = {json.dumps(behaviour)}
"""


def measured(clients: int, rounds: int, dishonest: int, participation: float, folder: Path) -> dict:
    """Seconds, processor seconds, peak memory and results of one run."""
    job, out = folder / "job.toml", folder / "run"
    job.write_text(job_text(clients, rounds, dishonest, participation))
    started = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", "truthfl", "run", str(job), "--out", str(out), "--json"], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    seconds = time.monotonic() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"truthfl run ended with exit code {child.returncode}.")
    results = json.loads((out / "results.json").read_text())
    return {
        "clients": clients,
        "rounds": rounds,
        "dishonest": dishonest,
        "participation": participation,
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
        "clients_paid": sum(client["pay"] > 0 for client in results["clients"]),
        "test_loss": results["server"]["test_loss"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--participation", type=float, default=1.0, help="share of the rounds in which each is asked")
    parser.add_argument("--dishonest", type=int, default=0, help="number of dishonest clients")
    parser.add_argument("--folder", type=Path, help="keep the run in this folder, which must be new")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    numbers = (arguments.clients, arguments.rounds, arguments.dishonest, arguments.participation)
    if arguments.folder is None:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(*numbers, Path(folder))
    else:
        arguments.folder.mkdir(parents=True)
        found = measured(*numbers, arguments.folder)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{found['clients']:,} clients, {found['dishonest']:,} of them dishonest, {found['rounds']} rounds, "
        f"each asked in {found['participation']:.0%} of them"
    )
    print(f"seconds            {found['seconds']:8.1f}")
    print(f"processor seconds  {found['cpu_seconds']:8.1f}")
    print(f"peak memory, MB    {found['peak_mb']:8.0f}")
    print(f"clients paid       {found['clients_paid']:8,}, test loss {found['test_loss']:.4f}")


if __name__ == "__main__":
    main()
