"""How often honest people are paid at least their cost: fresh people and fresh pilots, under the default contract.

    python -m benchmarks.coverage [--populations 200] [--sets mnist digits table texts] [--mnist FOLDER] [--json]

Each population has new pilot data, a new test set and new people, all of them honest. The operator plans on the pilot:
recipe, solo curve, labels and terms. The people label, train alone and are tested, and are paid by the contract. Joint
training and its curve are measured on the first population of each set; pay for computing is what computing costs.
`mnist` is the 5,000 digits of the built-in job, or all of MNIST with --mnist; `table` and `texts` are benchmarks/jobs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from truthfl import Observation
from truthfl.contracts.audition.pilot import label_numbers, measure_solo_curve, usual_recipe
from truthfl.contracts.audition.plan import plan_audition
from truthfl.contracts.contract import People
from truthfl.contracts.solo import SoloResult, peer_shifts
from truthfl.errors import InputError
from truthfl.job import DataJob, read_job
from truthfl.learning.people.labels import asked_order
from truthfl.learning.pilot.pilot_clients import PILOT_SEED, draw_pilot_clients
from truthfl.learning.solo import losses_of_groups

JOBS = Path(__file__).parent / "jobs"
SETS = ("mnist", "digits", "table", "texts")
FIRST_SEED = 70_000


def job_of(name: str, mnist: Path | None) -> DataJob:
    """The job of a set; digits are the pictures of 8 × 8 pixels."""
    if name == "mnist":
        job = read_job(None)
        return job if mnist is None else replace(job, data=replace(job.data, source=str(mnist)))
    files = {"digits": "digits.toml", "table": "table_digits.toml", "texts": "texts_docstrings.toml"}
    return read_job(JOBS / files[name])


@dataclass(frozen=True)
class Population:
    """What honest people of one population are paid over their cost, and whether they were stopped."""

    pay_over_cost: list[float]
    stopped: int


def populations(job: DataJob, count: int) -> Iterator[Population | str]:
    """Each population, or why its pilot has no plan."""
    first = job.plan(job.server_side())
    known = first.details.inputs
    people = People(
        np.array(job.clients.dataset_size),
        job.clients.labeling_cost,
        job.clients.sample_cost,
        job.clients.participation,
    )
    for number in range(count):
        here = replace(job, data=replace(job.data, seed=FIRST_SEED + number))
        try:
            yield _population(here, people, known, FIRST_SEED + number)
        except InputError as error:
            yield str(error)


def _population(job: DataJob, people: People, known, seed: int) -> Population:
    side = job.simulated_federation()
    numbers = label_numbers(side, int(people.dataset_size.max()))
    pilot = draw_pilot_clients(side, int(numbers[-1]), PILOT_SEED)
    recipe = usual_recipe(pilot, people, int(numbers[0]))
    solo = measure_solo_curve(pilot, numbers, recipe)
    clients = known.clients
    measured = replace(known.measured, solo=solo, joint=None, audition_cost=clients.sample_cost * recipe.samples)
    contract = plan_audition(replace(known, measured=measured))
    data, partition = side.federated.data, side.federated.partition
    rows = [partition.rows_of(k)[asked_order(int(partition.sizes[k]), k, seed)] for k in range(len(partition))]
    own = [
        lambda held=held[: int(n)]: (data.features[held], data.labels[held])
        for held, n in zip(rows, contract.labels, strict=True)
    ]
    losses = losses_of_groups(side.pilot.model, [(recipe, own)], side.test, seed)[0]
    shift = peer_shifts((losses - contract.solo_level) / contract.solo_spread)
    seen = Observation(0.0, solo=SoloResult(losses, shift))
    cost = clients.labeling_cost / clients.dataset_size * contract.labels + measured.audition_cost
    cost = cost + contract.computing_base
    return Population((contract.pay(seen) / cost).tolist(), int((~contract.passes(seen)).sum()))


def summary(name: str, found: list[Population | str]) -> dict:
    """The figures of one set."""
    paid = np.array([ratio for one in found if isinstance(one, Population) for ratio in one.pay_over_cost])
    means = [np.mean(np.array(one.pay_over_cost) >= 1.0) for one in found if isinstance(one, Population)]
    return {
        "set": name,
        "people": len(paid),
        "populations": len(means),
        "paid_cost": float((paid >= 1.0).mean()),
        "paid_cost_error": float(np.std(means, ddof=1) / np.sqrt(len(means))),
        "pay_over_cost": float(paid.mean()),
        "stopped": sum(one.stopped for one in found if isinstance(one, Population)),
        "without_plan": sum(isinstance(one, str) for one in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--populations", type=int, default=200)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.populations < 2:
        parser.error("populations must be at least 2")
    rows = []
    if not arguments.json:
        print("set        people   paid their cost    pay / cost   stopped   without a plan", flush=True)
    for name in arguments.sets:
        job = job_of(name, arguments.mnist)
        found = list(populations(job, arguments.populations))
        row = summary(name, found)
        rows.append(row)
        if not arguments.json:
            share, error = row["paid_cost"], 2 * row["paid_cost_error"]
            print(
                f"{name:8s} {row['people']:8,}   {share:7.1%} ± {error:.1%}   {row['pay_over_cost']:10.2f}   "
                f"{row['stopped']:7}   {row['without_plan']:14}",
                flush=True,
            )
    if arguments.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
