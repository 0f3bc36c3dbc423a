"""How often honest reports are longer than the bound that the pilot gives, on honest jobs that the fit has not seen.

    python -m benchmarks.report_bound [--jobs 100]

Ten clients with MNIST digits, softmax regression, 100 rounds; clients drawn anew from the pilot data in each job.
Prints the share of reports beyond the points that one in a hundred, in a thousand, and in a million should exceed, in
the round in which that share is largest, and the longest report as a share of the bound.
"""

from __future__ import annotations

import argparse

import numpy as np

from truthfl.learning.federations import Data, ModelChoice, server_side
from truthfl.learning.report_bound import DRAWS, EXCEEDED, FIRST_SEED, fit_lengths, honest_lengths
from truthfl.mechanism.setting import Training

SIZES, ROUNDS, STEP, BATCHES = (160,) * 10, 100, 0.8, (8, 20, 60)


def measure(jobs, batch):
    data = Data(source="mnist", pilot_samples=2000, test_samples=400)
    side = server_side(data, ModelChoice(), SIZES, Training(ROUNDS, 1, STEP))
    batches = np.full(len(SIZES), float(batch))
    lengths = fit_lengths(honest_lengths(side, batches, FIRST_SEED, DRAWS))
    fresh = honest_lengths(side, batches, FIRST_SEED + DRAWS, jobs)
    beyond = [float((fresh > lengths.exceeded_by(share)).mean(axis=1).max()) for share in (1e-2, 1e-3, EXCEEDED)]
    return fresh.size, lengths.exceeded_by(EXCEEDED), beyond, float(fresh.max())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100)
    jobs = parser.parse_args().jobs
    if jobs < 1:
        parser.error("jobs must be at least 1")
    print("batch  reports  bound   beyond 1 in 100, 1,000, 1,000,000   longest / bound")
    for batch in BATCHES:
        reports, bound, beyond, longest = measure(jobs, batch)
        shares = "  ".join(f"{share:.5f}" for share in beyond)
        print(f"{batch:5d}  {reports:7,d}  {bound:5.2f}   {shares}             {longest / bound:.2f}")


if __name__ == "__main__":
    main()
