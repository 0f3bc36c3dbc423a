"""The accuracy of a plan's margin: the final loss of honest work compared with the expected loss, on many splits.

    python -m benchmarks.margin [--splits 12] [--json]

For each split of the digits of the built-in job, under the contract lceme: plan on the pilot data, train honest
clients on their data, and divide (loss − expected loss) by the plan's `loss_error`. If `loss_error` is right, the
root mean square is about 1, and about one split in twenty is above 1.645, where honest work is paid below cost.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np

from truthfl import Strategies
from truthfl.job import read_job
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.learning.training.train import train

RUNS, FIRST_SPLIT = 4, 100


def standardized(job, split):
    """(loss − expected) / loss_error of honest work on this split."""
    job = replace(job, data=replace(job.data, seed=split))
    simulation = job.simulated_federation()
    plan = job.plan(simulation, PilotDesign(seeds=4, honest_seeds=16))
    federated = replace(simulation.federated, training=plan.training)
    honest = Strategies.truthful(plan.contract.batch_size)
    done = train(federated, honest, np.arange(RUNS), evaluate_on={"test": simulation.test})
    loss = float(done.evaluations["test"].loss[:, -1].mean())
    expected = plan.calibration.model.truthful_loss(plan.contract.batch_size)
    return {"split": split, "loss": loss, "expected": expected, "loss_error": plan.loss_error,
            "standardized": (loss - expected) / plan.loss_error}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.splits < 1:
        parser.error("splits must be at least 1")
    job, rows = read_job(None).with_contract("lceme"), []
    for split in range(FIRST_SPLIT, FIRST_SPLIT + arguments.splits):
        rows.append(standardized(job, split))
        if not arguments.json:
            rounded = {name: round(value, 4) for name, value in rows[-1].items()}
            print(rounded, flush=True)
    far = np.array([row["standardized"] for row in rows])
    found = {"splits": rows, "root_mean_square": float(np.sqrt((far**2).mean())), "above": float((far > 1.645).mean())}
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"root of the mean square {found['root_mean_square']:.2f}; above 1.645: {found['above']:.0%} of the splits")


if __name__ == "__main__":
    main()
