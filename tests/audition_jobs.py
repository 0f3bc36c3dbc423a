"""A small job with an audition, run by hand: four clients, small digits, a plan that is made once."""

import json
from dataclasses import replace

import numpy as np
from flwr.app import Message

from small_jobs import SMALL_JOB, UNMASKED
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.participants import InProcessGrid, grid_of, simulated_participants
from truthfl.flower_patches import set_origin
from truthfl.job import DataJob, read_job
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed

QUICK = PilotDesign(seeds=2, honest_seeds=8, batch_sizes=(4, 8, 16, 32))
PLANNED_WITH, ALLOWED = 3.0, 10.0  # most_pay; `Plans` raise the caps afterwards
CHANGES = (
    ('"lceme"', '"audition"'),
    ("rounds = 30", "rounds = 12\nstep_size = 1.5"),
    ("loss_value = 4000.0", "loss_value = 20000.0"),
    ("sample_cost = 0.05", "sample_cost = 0.01"),
    ('"truthful", "free rider", "truthful", "small batch"', '"truthful", "truthful", "truthful", "truthful"'),
)


def audition_job_file(folder, *more, privacy=UNMASKED):
    """The small job with an audition, something in it changed; unless told otherwise the server sees single reports."""
    text = SMALL_JOB
    for old, new in (*CHANGES, *more):
        assert old in text
        text = text.replace(old, new)
    path = folder / "audition.toml"
    path.write_text(text + privacy)
    return path


def audition_job(folder, behaviours=None, **server):
    """The job, with clients who behave so, and other settings of the server."""
    job = read_job(audition_job_file(folder))
    if behaviours is not None:
        job = job.with_clients(type(job.clients)(**job.document()["clients"] | {"behaviour": behaviours}))
    return replace(job, server=replace(job.server, **{"most_pay": ALLOWED} | server))


class Plans:
    """Plans, made once per set of clients; the joint part, which hardly counts in so small a job, is made to count."""

    def __init__(self):
        self.made = {}

    def __call__(self, job, side, make=DataJob.plan):
        told = job.document()
        for part, name in (("clients", "behaviour"), ("server", "audition_seconds"), ("server", "label_seconds")):
            del told[part][name]
        key = json.dumps(told, sort_keys=True)
        if key not in self.made:
            plan = make(replace(job, server=replace(job.server, most_pay=PLANNED_WITH)), side, QUICK)
            all_alike = np.ones(len(plan.clients))
            contract = replace(
                plan.contract, joint_slope=300.0 * all_alike, joint_base=150.0 * all_alike, joint_cap=400.0 * all_alike
            )
            self.made[key] = replace(plan, contract=contract)
        return self.made[key]


class Setting:
    """The job with its simulated grid and an operator's folder."""

    def __init__(self, folder, plans, behaviours=None, seed=5, job=None, **server):
        self.job = job or audition_job(folder, behaviours, **server)
        self.folder, self.plans, self.seed = folder / "out", plans, seed
        self.scene = self.job.simulated_federation()
        self.people = simulated_participants(self.job, self.scene, self.folder)
        self.grid = grid_of(self.people)

    def go(self, grid=None, *, simulated=False):
        with open_ledger(self.folder / "ledger.db") as book:
            key = kept_key(self.folder / "operator")
            operator = Operator(book, self.folder, key, secret_from_seed(self.seed), self.seed, simulated=simulated)
            name = job_name(book, self.job, self.seed)
            return conduct_job(grid or self.grid, self.job, name, operator, self.plans, lambda *_: None)

    def entries(self):
        with open_ledger(self.folder / "ledger.db") as book:
            return book.entries()


class Meddler(InProcessGrid):
    """A grid on which replies are changed on their way; `change(reply)` gives the replies that arrive instead."""

    def __init__(self, grid, change):
        self.__dict__.update(vars(grid))
        self.change = change

    def pull_messages(self, message_ids):
        return [one for reply in super().pull_messages(message_ids) for one in self.change(reply)]


def other_reply(content, like):
    """A reply with other contents to the same message."""
    made = Message(content, reply_to=like)
    set_origin(made, like.metadata.src_node_id, like.metadata.reply_to_message_id)
    return made
