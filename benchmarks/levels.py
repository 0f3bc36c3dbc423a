"""How pay suffers if the pilot misjudges how unlike the clients' data are, with and without learning the level.

    python -m benchmarks.levels [--splits 20] [--json]

The built-in job is planned on pilot clients with evenly mixed pictures. It is then held with honest clients, of whose
pictures a share shows one digit. The table shows pay over cost at the expected joint loss, and how many clients are
paid below cost or stopped: under the contract (the others' solo losses shift the expected one), and by the pilot's
level alone.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

import numpy as np

from truthfl import Observation, SoloResult
from truthfl.adversary.measure import SoloTerms, honest_shifts, lied_solo_losses, make_split
from truthfl.adversary.strategy import TRUTH
from truthfl.job import read_job
from truthfl.learning.data.federations import clients_federation
from truthfl.learning.people.labels import ask_for_labels

DEGREES, FIRST_SPLIT = (0.0, 0.2, 0.4, 0.7), 5000


def honest_pay(job, plan, degree: float, splits: int) -> dict:
    """Pay over cost of honest clients with data this unlike, at the expected joint loss."""
    contract = plan.contract
    data = replace(job.data, split="paper", degree=degree)
    terms = SoloTerms.of_contract(contract, plan.recipe)
    labels = np.zeros(len(job.clients), dtype=int)
    labels[plan.asked] = plan.clients.dataset_size
    everybody = list(range(len(plan.clients)))
    cost = plan.cost
    rows = {"learned": [], "pilot's": []}
    for split in range(FIRST_SPLIT, FIRST_SPLIT + splits):
        federated, test = clients_federation(
            data, job.model, job.clients.dataset_size, plan.training, job.clients.participation, split_seed=split
        )
        here = make_split(ask_for_labels(federated, labels, split), test, plan.training, split)
        cases = [(client, 0) for client in everybody]
        solo = lied_solo_losses(here, terms, [TRUTH], cases, threads=None)[0]
        shift = honest_shifts(here, terms, everybody, threads=None)
        for name, shifts in (("learned", shift), ("pilot's", np.zeros_like(shift))):
            seen = Observation(plan.expected_loss, solo=SoloResult(solo, shifts))
            pay = contract.pay(seen)
            rows[name].append((pay / cost, pay < cost, ~contract.passes(seen)))
    return {
        "degree": degree,
        **{
            name: {
                "pay_over_cost": float(np.mean([pay for pay, _, _ in values])),
                "below_cost": float(np.mean([below for _, below, _ in values])),
                "stopped": float(np.mean([stopped for _, _, stopped in values])),
            }
            for name, values in rows.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.splits < 1:
        parser.error("splits must be at least 1")
    job = read_job(None)
    even = replace(job, data=replace(job.data, split="iid"))
    plan = even.plan(even.server_side())
    rows = [honest_pay(job, plan, degree, arguments.splits) for degree in DEGREES]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print("share of one digit   level           pay / cost   below cost   stopped")
    for row in rows:
        for name in ("learned", "pilot's"):
            one = row[name]
            print(
                f"{row['degree']:18.0%}   {name:8s}  {one['pay_over_cost']:15.2f}   {one['below_cost']:10.1%}   "
                f"{one['stopped']:7.1%}"
            )


if __name__ == "__main__":
    main()
