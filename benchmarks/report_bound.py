"""How often honest reports exceed the pilot's bounds, on honest jobs that the fit has not seen.

    python -m benchmarks.report_bound [--jobs 100]

Jobs of MNIST digits have 100 rounds, or 60 with the network; each job draws new clients from the pilot data. Prints the
share of reports beyond the points that one in a hundred, in a thousand, and in a million should exceed, in the round in
which that share is largest. Also prints the longest report as a share of its round's bound, and the bounds of the first
and the last round, also as multiples of those rounds' medians.
"""

from __future__ import annotations

import argparse

import numpy as np

from truthfl.contracts.setting import Training
from truthfl.learning.data.federations import Data, ModelChoice, server_side
from truthfl.learning.pilot.honest_rounds import BOUND_DRAWS as DRAWS
from truthfl.learning.pilot.honest_rounds import (
    EXCEEDED,
    honest_jobs,
    honest_lengths,
    largest_from_half,
    longest_honest,
    moments_of,
)
from truthfl.learning.pilot.honest_rounds import FIRST_BOUND_SEED as FIRST_SEED

SIZES = (160,) * 10
JOBS = (
    ("softmax, batch 1", ModelChoice(), 100, 0.8, 1),
    ("softmax, batch 8", ModelChoice(), 100, 0.8, 8),
    ("softmax, batch 20", ModelChoice(), 100, 0.8, 20),
    ("softmax, batch 60", ModelChoice(), 100, 0.8, 60),
    ("softmax, noise 1", ModelChoice(clip=1.0, noise=1.0), 100, 0.8, 20),
    ("network, batch 20", ModelChoice(kind="cnn"), 60, 0.2, 20),
)


def measure(model, rounds, step, batch, jobs):
    data = Data(source="mnist", pilot_samples=2000, test_samples=400)
    side = server_side(data, model, SIZES, Training(rounds, 1, step))
    batches = np.full(len(SIZES), float(batch))
    seen = honest_lengths(honest_jobs(side, batches))
    fresh = honest_lengths(honest_jobs(side, batches, FIRST_SEED + DRAWS, jobs))
    beyond = [float((fresh > longest_honest(seen, share)[:, None]).mean(axis=1).max()) for share in (1e-2, 1e-3)]
    bounds = largest_from_half(moments_of(rounds), longest_honest(seen, EXCEEDED))
    beyond.append(float((fresh > bounds[:, None]).mean(axis=1).max()))
    return fresh, bounds, beyond


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100)
    jobs = parser.parse_args().jobs
    if jobs < 1:
        parser.error("jobs must be at least 1")
    print("job                reports  beyond 1 in 100, 1,000, 1,000,000  longest/bound  first bound    last bound")
    for name, model, rounds, step, batch in JOBS:
        fresh, bounds, beyond = measure(model, rounds, step, batch, jobs)
        shares = "  ".join(f"{share:.5f}" for share in beyond)
        longest = float((fresh.max(axis=1) / bounds).max())
        ends = "  ".join(f"{bounds[at]:5.2f} ({bounds[at] / np.median(fresh[at]):4.1f})" for at in (0, -1))
        print(f"{name:18} {fresh.size:7,d}  {shares}           {longest:.2f}           {ends}")


if __name__ == "__main__":
    main()
