"""The calibrated loss model compared with real training: softmax regression on MNIST, the paper's ten clients.

    python -m benchmarks.calibration [--json] [--seeds N]

Prints the constants and their kinds; the loss by step size; the effect of a scaled report on the loss at small steps
and at the best step; the real loss by batch size and the calibrated c + v/D, with R²; and the ratio of each bound to
the calibrated model, at the largest step size at which both bounds hold.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np

from truthfl import Strategies, Training, paper_bound, sound_bound
from truthfl.contracts.lceme.pilot import calibrate
from truthfl.learning.data.datasets import bundled_mnist
from truthfl.learning.data.partition import Federated, paper_partition
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.pilot.constants import measure_constants
from truthfl.learning.pilot.runs import PilotDesign, pilot_runs
from truthfl.learning.pilot.step_size import effect_of_scaled_reports, find_step_size

BATCHES = (5, 10, 20, 40, 80, 160)


def federation(step_size):
    train, test = bundled_mnist().split_off(1000, seed=0)
    partition = paper_partition(train.labels, [600] * 10, seed=1)
    model = SoftmaxRegression(784, 10, penalty=1e-3)
    return Federated(model, train, partition, Training(100, 1, step_size)), test


def at_step(federated, step_size):
    return replace(federated, training=replace(federated.training, step_size=step_size))


def constants_table(measured):
    rows = []
    for name, found in vars(measured).items():
        value = np.asarray(found.value)
        shown = f"{float(value):.4g}" if value.ndim == 0 else f"{value.min():.3g} to {value.max():.3g}"
        rows.append({"constant": name, "value": shown, "kind": found.kind, "how": found.how})
    return rows


def real_against_fitted(runs, fitted):
    rows = []
    for size in BATCHES:
        honest = (runs.strategies.batch_size == size).all(axis=1) & (runs.strategies.labeling_effort == 1).all(axis=1)
        honest &= (runs.strategies.report_scale == 1).all(axis=1)
        loss = runs.loss[honest]
        model = float(fitted.model.expected_loss(Strategies.truthful(np.full(10, float(size)))))
        error = float(loss.std(ddof=1) / np.sqrt(len(loss)))
        rows.append({"batch": size, "real_loss": float(loss.mean()), "error": error, "fitted": model})
    return rows


def design(seeds):
    scales = (0.5, 0.75, 1.25, 1.5)
    return PilotDesign(seeds, seeds, batch_sizes=BATCHES, report_scales=scales, lie_batch_size=40)


def bounds_against_fitted(federated, test, smoothness, seeds):
    limit = 1.0 / (4.0 * smoothness)
    small = at_step(federated, limit)
    measured = measure_constants(small)
    clients = measured.clients(small, sample_cost=1.0, labeling_cost=1.0)
    fitted = calibrate(small, pilot_runs(small, test, design(seeds)), measured.gradients())
    honest = Strategies.truthful(np.full(10, 40.0))
    real_gap = float(fitted.model.expected_loss(honest)) - measured.constants().optimal_loss
    rows = []
    for name, bound in (("paper", paper_bound), ("sound", sound_bound)):
        model = bound(clients, small.training, measured.constants())
        rows.append(
            {
                "bound": name,
                "sampling": float(model.sampling[0] / fitted.model.sampling[0]) if fitted.factor[1] > 0 else None,
                "labeling": float(model.labeling[0] / fitted.model.labeling[0]),
                "honest_gap": float(model.gap(honest)) / real_gap,
            }
        )
    return {"step_size": limit, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--seeds", type=int, default=10, help="runs per setting (10)")
    arguments = parser.parse_args()
    federated, test = federation(0.5)
    measured = measure_constants(federated)
    search = find_step_size(federated, test, 50, seeds=arguments.seeds)
    scaled = {
        step: effect_of_scaled_reports(federated, test, 50, step_size=step, seeds=5 * arguments.seeds)
        for step in (0.1, 0.5, search.best)
    }
    tuned = at_step(federated, search.best)
    runs = pilot_runs(tuned, test, design(arguments.seeds))
    fitted = calibrate(tuned, runs, measured.gradients())
    report = {
        "constants": constants_table(measured),
        "best_step_size": search.best,
        "loss_by_step_size": np.stack((search.tried, search.loss, search.standard_error), axis=1).tolist(),
        "change_by_scaled_report": {
            f"{step:.3g}": np.stack((e.report_scale, e.change, e.standard_error), axis=1).tolist()
            for step, e in scaled.items()
        },
        "real_against_fitted": real_against_fitted(runs, fitted),
        "r_squared_sampling": fitted.sampling_r_squared,
        "r_squared_all": fitted.r_squared,
        "factor": fitted.factor.tolist(),
        "factor_error": fitted.standard_error.tolist(),
        "bounds_over_fitted": bounds_against_fitted(federated, test, measured.smoothness.value, arguments.seeds),
    }
    print(json.dumps(report, indent=2)) if arguments.json else show(report)


def show(report):
    print("Constants\n")
    for row in report["constants"]:
        print(f"  {row['constant']:<19}{row['value']:>15}  {row['kind']:<9}{row['how'][:52]}")
    print(f"\nLoss by step size, 100 rounds, batch 50; best {report['best_step_size']:.3g}\n")
    for step, loss, error in report["loss_by_step_size"]:
        print(f"  {step:>8.4f}  {loss:.4f} ± {error:.4f}")
    print("\nChange of the loss when client 0 scales their report\n")
    for step, rows in report["change_by_scaled_report"].items():
        print(f"  step {step:>5}: " + "  ".join(f"× {s:g}: {c:+.4f} ± {e:.4f}" for s, c, e in rows))
    print(f"\nReal loss against the calibrated c + v/D, step {report['best_step_size']:.3g}\n")
    for row in report["real_against_fitted"]:
        print(f"  D = {row['batch']:>3}  real {row['real_loss']:.4f} ± {row['error']:.4f}  fitted {row['fitted']:.4f}")
    print(f"\n  R² of c + v/D: {report['r_squared_sampling']:.4f}; of all pilot runs: {report['r_squared_all']:.4f}")
    names = ("constant", "sampling", "labeling", "reporting")
    for name, factor, error in zip(names, report["factor"], report["factor_error"], strict=True):
        print(f"  factor of {name:<10}{factor:>10.5f} ± {error:.5f}")
    found = report["bounds_over_fitted"]
    print(f"\nBounds over the calibrated model, at step {found['step_size']:.4f}\n")
    for row in found["rows"]:
        sampling = "–" if row["sampling"] is None else f"{row['sampling']:.1f}"
        print(
            f"  {row['bound']}: sampling × {sampling}, labeling × {row['labeling']:.3g}, "
            f"honest loss gap × {row['honest_gap']:.3g}"
        )


if __name__ == "__main__":
    main()
