"""Kill a short job without warning at random moments, resume it each time, and see that nothing is lost or paid twice.

    python scripts/kill_and_resume.py [--kills 50] [--seed 0] [--audition]

Each killed run is started again in its folder until it ends. Then the ledger must pass its check, and everybody's pay
must be the same as in an undisturbed run. Prints where the kills fell.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from truthfl.errors import InputError
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.checking import check

SMALL_JOB = """
[data]
source = "digits"
pilot_samples = 600
test_samples = 400

[model]
kind = "softmax"

[training]
rounds = 30

[server]
loss_value = 4000.0
test_samples = 2000

[contract]
kind = "lceme"

[clients]
name = ["Ada", "Ben", "Cleo", "Dora"]
dataset_size = [120, 120, 150, 90]
labeling_cost = [120, 120, 150, 90]
sample_cost = 0.05
behaviour = ["truthful", "free rider", "truthful", "small batch"]
"""
JOB = SMALL_JOB.replace("rounds = 30", "rounds = 120\nstep_size = 0.5")
AUDITION_JOB = (
    JOB.replace('"lceme"', '"audition"')
    .replace("rounds = 120", "rounds = 60")
    .replace("loss_value = 4000.0", "loss_value = 100000.0")
    .replace("sample_cost = 0.05", "sample_cost = 0.005")
)


def start(job, folder):
    command = [sys.executable, "-m", "truthfl", "run", str(job), "--out", str(folder), "--json"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def entries(folder):
    try:
        with open_for_reading(folder / "ledger.db") as book:
            return book.entries()
    except InputError:  # killed before there was one
        return []


def settled(folder):
    """What was paid, and to whom; for one job only, since a second job would be a second payment."""
    rows = entries(folder)
    fault = check(rows)
    assert fault is None, fault
    assert len({row.job for row in rows}) == 1, "the resumed run began another job"
    return {row.key: row.document for row in rows if row.kind in ("settlement", "payment")}


def stage(folder):
    """How far the ledger was when the run was killed."""
    rows = entries(folder)
    return rows[-1].kind if rows else "nothing"


def undisturbed(job, folder):
    """The pay and the duration of an undisturbed run."""
    began = time.monotonic()
    run = start(job, folder)
    _, error = run.communicate()
    assert run.returncode == 0, error
    return settled(folder), time.monotonic() - began


def killed_until_done(job, folder, kills, longest, rng):
    """Kill a job at random moments until it ends or no kills are left; return where the kills fell."""
    fell = []
    while True:
        run = start(job, folder)
        if len(fell) < kills:
            try:
                run.wait(rng.uniform(0.0, longest))
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
        _, error = run.communicate()
        if run.returncode == 0:
            return fell
        assert run.returncode == -signal.SIGKILL, error
        fell.append(stage(folder))
        if (folder / "results.json").exists():  # written last: the kill came when all was done
            return fell


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--audition", action="store_true")
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as place:
        job = Path(place) / "job.toml"
        job.write_text(AUDITION_JOB if asked.audition else JOB, encoding="utf-8")
        expected, seconds = undisturbed(job, Path(place) / "calm")
        fell, jobs = [], 0
        while len(fell) < asked.kills:
            jobs += 1
            folder = Path(place) / f"wild-{jobs}"
            more = killed_until_done(job, folder, min(5, asked.kills - len(fell)), 0.8 * seconds, rng)
            assert settled(folder) == expected, "the pay differs from the undisturbed run's"
            fell += more
            print(f"{len(fell)} kills: the ledger is whole, the pay is the same", flush=True)
    print("the last row in the ledger when it was killed:", dict(Counter(fell)))


if __name__ == "__main__":
    main()
