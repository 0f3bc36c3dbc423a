"""Causes of gains by scaled reports: settings that differ in test set, clients' data, split or weights.

    python -m benchmarks.scaled_reports FOLDER [--splits N] [--seeds N] [--json]

FOLDER has the four files of the full MNIST. Softmax regression, ten clients, 100 rounds, batches of 60, step size tuned
on the server's pilot data. One client at a time multiplies her reports by γ, the others being honest. Half of the seeds
select the (client, γ) that lowers the test loss most, the other half measure its effect, so that the selection does not
bias the result. With "weights fitted", the server fits the clients' weights on its own data.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace

import numpy as np

from truthfl import Strategies, Training
from truthfl.learning.federations import Data, ModelChoice, build_federation, with_training
from truthfl.learning.pilot_design import PilotDesign
from truthfl.learning.step_size import find_step_size
from truthfl.learning.training import train

CLIENTS, ROUNDS, BATCH = 10, 100, 60
SCALES = (0.5, 0.75, 1.5, 2.0)
PILOT = 10_000
FITTING_STEPS, FITTING_SEEDS, PROBE = 6, 4, 0.25


@dataclass(frozen=True)
class Setting:
    name: str
    test_samples: int | None = 1000
    client_samples: int = 200
    split: str = "paper"
    fit_weights: bool = False


SETTINGS = (
    Setting("1,000 test digits, 200 a client, degree 0.4"),
    Setting("the same with 10,000 test digits", test_samples=None),
    Setting("the same with 1,000 samples a client", client_samples=1000),
    Setting("the same with everybody's data alike (IID)", split="iid"),
    Setting("the same with weights fitted by the server", fit_weights=True),
    Setting("weights fitted, 10,000 test digits", test_samples=None, fit_weights=True),
)


def losses(federated, scale, seeds, sample):
    """Final losses on this sample, (rows of scales, seeds); all rows have the same draws."""
    rows = np.repeat(np.atleast_2d(scale), len(seeds), axis=0)
    strategies = Strategies(1.0, float(BATCH), rows)
    done = train(federated, strategies, np.tile(seeds, len(rows) // len(seeds)), evaluate_on={"at": sample})
    return done.evaluations["at"].loss[:, -1].reshape(-1, len(seeds))


def fitted_weights(federated, sample):
    """Report scales that minimize the loss on the server's own data in each coordinate, by Newton steps."""
    scale = np.ones(CLIENTS)
    seeds = np.arange(FITTING_SEEDS) + 500
    for _ in range(FITTING_STEPS):
        probes = np.concatenate(([np.zeros(CLIENTS)], PROBE * np.eye(CLIENTS), -PROBE * np.eye(CLIENTS)))
        found = losses(federated, scale * np.exp(probes), seeds, sample).mean(axis=1)
        here, above, below = found[0], found[1 : CLIENTS + 1], found[CLIENTS + 1 :]
        slope, curve = (above - below) / (2 * PROBE), (above - 2 * here + below) / PROBE**2
        step = -slope / np.maximum(curve, np.median(np.abs(curve)) / 2)
        scale = scale * np.exp(0.5 * np.clip(step, -0.5, 0.5))
    return scale


def largest_gain(setting, folder, split_seed, seeds):
    """(gain, standard error, scale, honest loss) of the scaled report that lowers the test loss most."""
    data = Data(folder, setting.split, pilot_samples=PILOT, test_samples=setting.test_samples, seed=split_seed)
    sizes = (setting.client_samples,) * CLIENTS
    simulation = build_federation(data, ModelChoice(), sizes, Training(ROUNDS, 1, 1.0))
    step = find_step_size(
        simulation.pilot, simulation.test, PilotDesign().lie_batch_size, low=0.1, seeds=4
    ).parabola_minimum
    federated = with_training(simulation.federated, replace(simulation.federated.training, step_size=step))
    weights = fitted_weights(federated, simulation.pilot.data) if setting.fit_weights else np.ones(CLIENTS)
    lies = np.ones((1 + CLIENTS * len(SCALES), CLIENTS))
    for row, (client, scale) in enumerate(np.ndindex(CLIENTS, len(SCALES)), start=1):
        lies[row, client] = SCALES[scale]
    found = losses(federated, weights * lies, split_seed * 1000 + np.arange(2 * seeds), simulation.test)
    gain = found[0] - found[1:]
    best = int(gain[:, :seeds].mean(axis=1).argmax())
    held_out = gain[best, seeds:]
    return (
        float(held_out.mean()),
        float(held_out.std(ddof=1) / np.sqrt(seeds)),
        SCALES[best % len(SCALES)],
        float(found[0].mean()),
    )


def measure(folder, splits, seeds):
    for setting in SETTINGS:
        found = [largest_gain(setting, folder, split, seeds) for split in range(11, 11 + splits)]
        gains = np.array([one[0] for one in found])
        yield {
            "setting": setting.name,
            "gain": float(gains.mean()),
            "gain_error": float(gains.std(ddof=1) / np.sqrt(splits)),
            "run_error": float(np.mean([one[1] for one in found])),
            "scales": [one[2] for one in found],
            "loss": float(np.mean([one[3] for one in found])),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="with the four files of the full MNIST")
    parser.add_argument(
        "--splits", type=int, default=5, help="of the data over the clients, each with its own test set"
    )
    parser.add_argument("--seeds", type=int, default=10, help="to pick the lie, and as many to measure it")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.splits < 2 or arguments.seeds < 2:
        parser.error("splits and seeds must be at least 2")
    if not arguments.json:
        print(f"{'setting':46} {'loss':>7} {'largest gain of loss':>22}  best γ by split")
    rows = []
    for row in measure(arguments.folder, arguments.splits, arguments.seeds):
        rows.append(row)
        if not arguments.json:
            gain = f"{row['gain']:.5f} ± {row['gain_error']:.5f}"
            print(f"{row['setting']:46} {row['loss']:7.4f} {gain:>22}  {row['scales']}", flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
