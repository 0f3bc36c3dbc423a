"""Which statistic of a solo model should determine label pay? The risk of pay under several, on pilot clients.

    python -m benchmarks.solo_statistics [--labels 140] [--clients 100] [--data FOLDER] [--json]

Risk is the standard deviation of label pay between honest clients over the cost of their labels: the statistic's spread
over its slope by log n. Lower risk means a smaller margin. All statistics are taken after the correction of scale and
class frequencies; the contract pays by the geometric mean.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np

from truthfl.contracts.audition.level import WINDOW
from truthfl.job import read_job
from truthfl.learning.people.labels import asked_order
from truthfl.learning.pilot.pilot_clients import draw_in_turns
from truthfl.learning.solo import Recipe, fit_scores, log_probabilities, standardized, train_all_alone

RECIPE = Recipe(steps=150, batch_size=64, step_size=0.25, penalty=0.001, shifts=4)
SEED = 11


def statistics(scores, labels):
    """Each statistic for models with these scores, (models,)."""
    wide, classes = standardized(scores.astype(float))[0], scores.shape[2]
    log_p = np.empty_like(wide)
    for half in (0, 1):
        log_p[:, 1 - half :: 2] = log_probabilities(
            wide[:, 1 - half :: 2], *fit_scores(wide[:, half::2], labels[half::2])
        )
    loss = -log_p[:, np.arange(len(labels)), labels]
    by_class = np.stack([loss[:, labels == c].mean(axis=1) for c in range(classes)], axis=1)
    return {
        "mean loss": loss.mean(axis=1),
        "geometric mean of classes": np.exp(np.log(by_class).mean(axis=1)),
        "Brier score": np.square(np.exp(log_p) - np.eye(classes)[labels]).sum(axis=2).mean(axis=1),
        "error rate": (log_p.argmax(axis=2) != labels).mean(axis=1),
    }


def risks(labels: int, clients: int, data: str | None) -> dict[str, float]:
    """Spread over slope of each statistic."""
    job = read_job(None)
    side = (job if data is None else replace(job, data=replace(job.data, source=data))).server_side()
    numbers = [round(labels / WINDOW), labels, round(labels * WINDOW)]
    partition = draw_in_turns(side, (numbers[-1],) * clients, SEED)
    rows = [partition.rows_of(k)[asked_order(numbers[-1], k, SEED)] for k in range(clients)]
    model, pilot = side.pilot.model, side.pilot.data
    found = []
    for number in numbers:
        samples = [(pilot.images[own[:number]], pilot.labels[own[:number]]) for own in rows]
        trained = train_all_alone(model, samples, RECIPE, 0, classes=pilot.classes)
        found.append(statistics(np.stack([model.scores(one, side.test.images) for one in trained]), side.test.labels))
    return {
        name: float(found[1][name].std(ddof=1) / ((found[0][name] - found[2][name]).mean() / (2 * np.log(WINDOW))))
        for name in found[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, default=140)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--data", help="folder with MNIST's four files")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.labels < 20 or arguments.clients < 3:
        parser.error("labels must be at least 20, and clients at least 3")
    found = risks(arguments.labels, arguments.clients, arguments.data)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    for name, risk in sorted(found.items(), key=lambda item: item[1]):
        print(f"{risk:7.1%}  {name}")


if __name__ == "__main__":
    main()
