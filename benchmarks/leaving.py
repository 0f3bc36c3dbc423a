"""What a leaving participant costs the others: honest jobs like the guide's, in which one participant leaves early.

    python -m benchmarks.leaving [--clients 3] [--rounds 5] [--jobs 20] [--first 0] [--json]

Job k has newly drawn data (data seed 1 + k). Each job runs in one process: with everybody to the end, and with the last
participant gone after their first report; with and without masked reports. The table shows the mean pay of the others
as a share of their cost, and how many of them are paid below cost. With three clients, two are left: masked rounds need
three, so the model then stays as it is after the first round.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from flwr.app import Error, Message, MessageType

from truthfl.federation.operator.kept_jobs import fixed_draws, kept_key
from truthfl.federation.participant.client_app import client_app
from truthfl.federation.protocol.server import Operator, conduct_job
from truthfl.federation.simulated.participants import InProcessGrid, simulated_participants
from truthfl.federation.simulated.payoff import audition_costs
from truthfl.flower_patches import NODE_UNAVAILABLE, set_message_id
from truthfl.job import read_job
from truthfl.learning.people.behaviours import TRUTHFUL
from truthfl.ledger.book import open_ledger

JOB = """
[data]
source = "digits"
pilot_samples = 600
test_samples = 400
[model]
kind = "softmax"
[training]
rounds = {rounds}
step_size = 0.5
[server]
loss_value = 20000.0
test_samples = 2000
round_seconds = 0.01
[privacy]
secure_aggregation = {masked}
[clients]
dataset_size = {sizes}
label_cost = 1.0
sample_cost = 0.002
"""
SIZES = (120, 120, 150)


class LeavingGrid(InProcessGrid):
    """A grid with a node that stops answering after its first report; none leaves if `leaver` is None."""

    def __init__(self, participants, leaver):
        super().__init__(client_app(lambda context: participants[context.node_id]), {node: {} for node in participants})
        self.leaver, self.reports = leaver, 0

    def get_node_ids(self):
        return [node for node in self.contexts if node != self.leaver or not self.reports]

    def _reply_to(self, message, number):
        if message.metadata.dst_node_id == self.leaver:
            if self.reports:
                set_message_id(message, number)
                return Message(Error(NODE_UNAVAILABLE, "the node is not connected"), reply_to=message)
            self.reports += message.metadata.message_type == MessageType.TRAIN
        return super()._reply_to(message, number)


def kept_plan():
    """A function that plans at its first call and then returns the same plan."""
    made = []

    def plan(job, side):
        if not made:
            made.append(job.plan(side))
        return made[0]

    return plan


def pay_over_cost(job, plan, seed, leaves):
    """Pay and cost of one run, by client, for all clients but the last."""
    with tempfile.TemporaryDirectory() as name, open_ledger(Path(name) / "ledger.db") as ledger:
        folder, draws = Path(name), fixed_draws(seed)
        people = simulated_participants(job, job.simulated_federation(), folder)
        operator = Operator(ledger, folder, kept_key(folder / "operator"), draws.secret, draws.seed)
        grid = LeavingGrid(people, max(people) if leaves else None)
        view = conduct_job(grid, job, "job", operator, plan, lambda *_: None)
    offers, kinds = view.agreement.offers, [TRUTHFUL] * len(view.agreement.offers)
    passed = {offer.client.name for offer in view.taking_part.offers}
    cost = audition_costs(view.agreement, kinds, set(view.commitments), passed)
    last = job.clients.name[-1]
    return [
        (float(view.settlements[offer.client.name].document["amount"]), float(own))
        for offer, own in zip(offers, cost, strict=True)
        if offer.client.name != last
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first job")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.clients < 3 or arguments.rounds < 2 or arguments.jobs < 1 or arguments.first < 0:
        parser.error("at least 3 clients, 2 rounds and 1 job are needed, and the first job is 0 or later")
    sizes = [SIZES[i % len(SIZES)] for i in range(arguments.clients)]
    rows = []
    for masked in (True, False):
        text = JOB.format(rounds=arguments.rounds, masked=str(masked).lower(), sizes=sizes)
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            read = read_job(Path(file.name))
        runs = {False: [], True: []}
        for k in range(arguments.first, arguments.first + arguments.jobs):
            job = replace(read, data=replace(read.data, seed=1 + k))
            plan = kept_plan()
            for leaves in (False, True):
                runs[leaves] += pay_over_cost(job, plan, k, leaves)
            if not arguments.json:
                print(f"\rjob {k}, {'masked' if masked else 'open'} reports", end="", flush=True)
        for leaves, paid in runs.items():
            pay, cost = np.array(paid).T
            rows.append(
                {
                    "masked": masked,
                    "leaves": leaves,
                    "clients": len(paid),
                    "pay": pay.mean(),
                    "cost": cost.mean(),
                    "lowest": (pay / cost).min(),
                    "below_cost": int((pay < cost).sum()),
                }
            )
    if arguments.json:
        print(json.dumps(rows))
        return
    print("\rreports   one leaves   mean pay   mean cost   pay / cost   lowest   below cost")
    for row in rows:
        print(
            f"{'masked' if row['masked'] else 'open':8s}  {'yes' if row['leaves'] else 'no':10s} {row['pay']:9.1f} "
            f"{row['cost']:11.1f} {row['pay'] / row['cost']:12.2f} {row['lowest']:8.2f} {row['below_cost']:8d} of "
            f"{row['clients']}"
        )


if __name__ == "__main__":
    main()
