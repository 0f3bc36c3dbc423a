"""What round zero gives: the joint model of honest people from the mean of their solo models, beside the old way.

    python -m benchmarks.round_zero [FILE] [--splits 5] [--json]

The job (the built-in one without FILE) is planned once. On each split other people hold other samples; they label as
many as the plan asks for. The old way starts from the job's common model, with the job's rounds, the same batches, a
step size tuned without momentum, and no calibration. Losses are those on the test set, averaged over the splits.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from truthfl import Strategies, Training
from truthfl.federation.protocol.final_model import Evaluation
from truthfl.job import read_job
from truthfl.learning.data.federations import clients_federation
from truthfl.learning.people.labels import ask_for_labels
from truthfl.learning.pilot.step_size import find_step_size
from truthfl.learning.solo import solo_mean, train_all_alone
from truthfl.learning.training.train import train

FIRST_SPLIT = 60_000


def models_of_split(job, plan, old: Training, split: int):
    """The models of one split by name, and the test set."""
    federated, test = clients_federation(
        job.data, job.model, job.clients.dataset_size, old, job.clients.participation, job.task, split_seed=split
    )
    labels = np.zeros(len(job.clients), dtype=int)
    labels[plan.asked] = plan.clients.dataset_size
    here = ask_for_labels(federated, labels, split)
    data, partition = here.data, here.partition
    samples = [(data.features[rows], data.labels[rows]) for rows in map(partition.rows_of, range(len(partition)))]
    alone = train_all_alone(here.model, samples, plan.recipe, split, classes=data.classes)
    zero = solo_mean(alone, here.weight.tolist())
    honest = Strategies.truthful(plan.contract.batch_size)
    end = zero
    if plan.training.rounds:
        end = train(replace(here, training=plan.training), honest, split, start=zero).params[0]
    common = train(replace(here, training=old), honest, split).params[0]
    return {"one solo model": alone[0], "round zero": zero, "the end": end, "the old way": common}, here.model, test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.splits < 1:
        parser.error("splits must be at least 1")
    job = read_job(None if arguments.file is None else Path(arguments.file))
    side = job.server_side()
    plan = job.plan(side)
    batch = int(np.median(plan.contract.batch_size))
    step = find_step_size(plan.side.pilot, side.test, batch, seeds=3).parabola_minimum
    old = replace(job.training, step_size=step)
    found: dict[str, list[tuple[float, float, float]]] = {}
    for split in range(FIRST_SPLIT, FIRST_SPLIT + arguments.splits):
        models, model, test = models_of_split(job, plan, old, split)
        raw, calibrated = Evaluation(model, test), Evaluation(model, test, side.pilot.data)
        for name, params in models.items():
            loss, accuracy = calibrated.loss_and_accuracy(params)
            found.setdefault(name, []).append((loss, raw.loss_and_accuracy(params)[0], accuracy))
    rounds = {"one solo model": 0, "round zero": 0, "the end": plan.training.rounds, "the old way": old.rounds}
    rows = [
        {"model": name, "rounds": rounds[name], **dict(zip(("loss", "raw_loss", "accuracy"), means, strict=True))}
        for name, values in found.items()
        for means in [np.mean(values, axis=0).tolist()]
    ]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{int(plan.contract.labels.sum())} labels, {arguments.splits} splits\n")
    print("model            rounds   loss, calibrated   loss, raw   accuracy")
    for row in rows:
        print(
            f"{row['model']:15s} {row['rounds']:7d}   {row['loss']:16.4f}   {row['raw_loss']:9.4f}   "
            f"{row['accuracy']:8.1%}"
        )


if __name__ == "__main__":
    main()
