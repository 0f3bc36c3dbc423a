"""What honest people lose when one participant sends a solo model that is better than honest ones.

    python -m benchmarks.good_model [--people 3 4 10] [--draws 4000]

The built-in job is planned for each number of honest people. Their solo losses are drawn from those of the pilot's
clients, and one participant's loss is the given number of spreads below the level. The table shows the average fall of
an honest participant's label pay, in per cent of the cost of their labels: once with the model in the level, if nobody
holds it, and once without it, if it is known or the operator refused it. It also shows how often the model is held as
too good.
"""

from __future__ import annotations

import argparse

import numpy as np

from truthfl import Observation, SoloResult
from truthfl.contracts.solo import peer_shifts
from truthfl.job import participants, read_job

BELOW = (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 12.0)  # spreads
SEED = 3


def planned(people: int):
    """The built-in job's audition contract with this many honest people, the pilot's spreads, and label costs."""
    job = read_job(None)
    fields = job.document()["clients"]
    chosen = {name: value[:people] if isinstance(value, list) else value for name, value in fields.items()}
    job = job.with_clients(participants(**chosen | {"behaviour": ["truthful"] * people}))
    plan = job.plan(job.server_side())
    solo = plan.details.solo
    place = int(np.argmin(np.abs(solo.labels - float(plan.contract.labels.mean()))))
    losses = np.asarray(solo.loss)[:, place]
    return plan.contract, (losses - losses.mean()) / losses.std(ddof=1), plan


def honest_pay(contract, excess, held):
    """(draws, honest people) label pay, from all excesses in spreads; the first is the good one, `held` or not."""
    paid = []
    for row, gone in zip(excess, held, strict=True):
        known = np.where((np.arange(len(row)) == 0) & gone, np.nan, row)
        shift = peer_shifts(known)
        loss = contract.solo_level + contract.solo_spread * known
        paid.append(contract.label_pay(Observation(0.0, solo=SoloResult(loss, shift)))[1:])
    return np.array(paid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, nargs="+", default=[3, 4, 10])
    parser.add_argument("--draws", type=int, default=4000)
    arguments = parser.parse_args()
    print("spreads below: " + " ".join(f"{below:>7g}" for below in BELOW))
    for people in arguments.people:
        contract, scores, plan = planned(people)
        cost = contract.labels * plan.clients.labeling_cost / plan.clients.dataset_size
        rng = np.random.default_rng(SEED)
        usual = rng.choice(scores, (arguments.draws, people))
        never = np.zeros(arguments.draws, dtype=bool)
        before = honest_pay(contract, usual, never).mean(axis=0)
        rows = {"in the level": [], "left out": [], "held": []}
        for below in BELOW:
            excess = usual.copy()
            excess[:, 0] = -below
            gate = contract.gate[0] / contract.solo_spread[0]
            above = np.array([peer_shifts(row)[0] for row in excess]) + below
            for name, gone in (("in the level", never), ("left out", ~never)):
                fall = (before - honest_pay(contract, excess, gone).mean(axis=0)) / cost[1:]
                rows[name].append(f"{fall.mean():7.1%}")
            rows["held"].append(f"{np.mean(above > gate):7.1%}")
        for name, cells in rows.items():
            print(f"{people:2d}, {name:<13}" + " ".join(cells), flush=True)


if __name__ == "__main__":
    main()
