"""Auditions: contracts on known curves, a small job run by hand, offers and receipts, held models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Message

from helpers.participants import SECRET, TEST_SET, Ada, a_round, an_offer, changed
from helpers.small_jobs import SMALL_JOB, UNMASKED
from truthfl import Clients, Training
from truthfl.contracts.audition.joint import JointAudition, JointMeasurement
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.audition.plan import AuditionInputs, AuditionMeasurement
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.participant import participant
from truthfl.federation.protocol.server import Operator, conduct_job, job_name
from truthfl.federation.simulated.participants import InProcessGrid, grid_of, simulated_participants
from truthfl.flower_patches import set_origin
from truthfl.home import participant_folder
from truthfl.job import DataJob, participants, read_job
from truthfl.learning.pilot.runs import PilotDesign
from truthfl.learning.solo import Recipe, train_alone
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import secret_from_seed
from truthfl.ledger.documents import signed_offer
from truthfl.ledger.entry import row_key, sign_row
from truthfl.ledger.evidence import passes
from truthfl.ledger.job_view import job_view
from truthfl.ledger.receipts import signed_receipt
from truthfl.ledger.settlement import settle
from truthfl.ledger.signing import read_key
from truthfl.ledger.terms import TriedLie

NUMBERS = np.unique(np.rint(np.geomspace(20, 300, 24)))


SCORES = np.linspace(-1.5, 1.5, 41) / np.std(np.linspace(-1.5, 1.5, 41), ddof=1)  # of 41 pilot clients, exactly


def curve(scale=60.0, floor=0.3, relative_spread=0.2, power=1.0, spread_power=1.0):
    """floor + scale / n^power, with a spread that is a share of its slope and falls as n^-spread_power."""
    level = floor + scale / NUMBERS**power
    slope = power * scale / NUMBERS**power
    spread = relative_spread * slope[-1] * (NUMBERS[-1] / NUMBERS) ** spread_power
    return SoloCurve(NUMBERS, level + SCORES[:, None] * spread)


def measurement(count, solo=None, **changes):
    values = {
        "solo": curve() if solo is None else solo,
        "joint_curve": 60.0,
        "joint_curve_error": 3.0,
        "audition_cost": np.full(count, 2.0),
        "batch": 16.0,
    }
    return AuditionMeasurement(**(values | changes))


def joint_measurement(count, **changes):
    """Of computing that is paid by the joint loss."""
    values = {
        "constant": 0.3,
        "sampling": np.full(count, 0.03),
        "absence": np.full(count, 0.01),
        "presence_curve": 60.0,
        "loss_error": 0.015,
    }
    return JointMeasurement(**(values | changes))


def inputs(count=10, label_cost=1.0, sample_cost=0.0006, kappa=40_000.0, measured=None, **changes):
    clients = Clients(
        weight=np.full(count, 1.0 / count),
        gradient_variance=1.0,
        sample_cost=sample_cost,
        labeling_cost=np.broadcast_to(label_cost, (count,)) * 220.0,
        dataset_size=220,
    )
    measured = measurement(count) if measured is None else measured
    return AuditionInputs(clients, measured, Training(100), kappa, **changes)


LIARS = ["truthful", "lazy labeler", "few labels", "truthful"]
QUICK = PilotDesign(seeds=2, honest_seeds=8, batch_sizes=(4, 8, 16, 32))
PLANNED_WITH, ALLOWED = 3.0, 10.0  # most_pay; `Plans` raise the caps afterwards
CHANGES = (
    ('"lceme"', '"audition"'),
    ("rounds = 30", "rounds = 12\nstep_size = 1.5"),
    ("loss_value = 4000.0", "loss_value = 20000.0"),
    ("sample_cost = 0.05", "sample_cost = 0.001"),
    ('"truthful", "free rider", "truthful", "small batch"', '"truthful", "truthful", "truthful", "truthful"'),
)


def audition_job_file(folder, *more, privacy=UNMASKED):
    """The small job with an audition and changes; by default the server sees single reports."""
    text = SMALL_JOB
    for old, new in (*CHANGES, *more):
        assert old in text
        text = text.replace(old, new)
    path = folder / "audition.toml"
    path.write_text(text + privacy)
    return path


def audition_job(folder, behaviours=None, **server):
    """The job, with these behaviours of clients and settings of the server."""
    job = read_job(audition_job_file(folder))
    if behaviours is not None:
        job = job.with_clients(participants(**job.document()["clients"] | {"behaviour": behaviours}))
    return replace(job, server=replace(job.server, **{"most_pay": ALLOWED} | server))


def joint_audition_job(folder, **server):
    """The job with such expensive computing that it is paid by the joint loss."""
    job = read_job(audition_job_file(folder, ("sample_cost = 0.001", "sample_cost = 0.02")))
    return replace(job, server=replace(job.server, **{"most_pay": ALLOWED} | server))


class Plans:
    """Plans, made once per set of clients. They raise computing pay, which hardly counts in such a small job."""

    def __init__(self):
        self.made = {}

    def __call__(self, job, side, make=DataJob.plan):
        told = job.document()
        for part, name in (("clients", "behaviour"), ("server", "audition_seconds"), ("server", "label_seconds")):
            del told[part][name]
        key = json.dumps(told, sort_keys=True)
        if key not in self.made:
            plan = make(replace(job, server=replace(job.server, most_pay=PLANNED_WITH)), side, QUICK)
            raised = {"computing_base": 150.0}
            if isinstance(plan.contract, JointAudition):
                raised |= {"joint_slope": 300.0, "joint_cap": 400.0}
            all_alike = {name: np.full(len(plan.clients), value) for name, value in raised.items()}
            contract = replace(plan.contract, **all_alike)
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


def signed_anew(entries, setting):
    """The rows with signatures of their operator."""
    key = row_key(read_key(setting.folder / "operator"))
    return [replace(entry, signature=sign_row(key, entry.hash)) for entry in entries]


class Meddler(InProcessGrid):
    """A grid that changes replies on their way; `change(reply)` returns the replies that arrive instead."""

    def __init__(self, grid, change):
        self.__dict__.update(vars(grid))
        self.change = change

    def pull_messages(self, message_ids):
        return [one for reply in super().pull_messages(message_ids) for one in self.change(reply)]


def other_reply(content, like):
    """A reply to the same message with other contents."""
    made = Message(content, reply_to=like)
    set_origin(made, like.metadata.src_node_id, like.metadata.reply_to_message_id)
    return made


RECIPE = {"steps": 100, "batch_size": 16, "step_size": 0.5, "penalty": 0.01, "shifts": 4}
TERMS = {
    "labels": 50.0, "solo_level": 1.0, "solo_spread": 0.1, "gate": 0.4,
    "label_slope": 200.0, "label_base": 90.0, "label_cap": 151.8, "audition_pay": 2.0, "computing_base": 40.0,
}  # fmt: skip
JOINT_TERMS = TERMS | {
    "joint_slope": 300.0, "joint_cap": 70.0, "joint_constant": 0.4, "joint_curve": 20.0, "total_labels": 200.0,
}  # fmt: skip
LIES = (
    TriedLie("fewer labels", "half of the labels", 0.5, 4, 1.0, 0.02, 0.005, 0.25, 0.03),
    TriedLie("random labels", "no labels, rest at random", 0.0, 4, 1.0, 0.3, 0.02, 0.9, 0.02),
    TriedLie("fabricated report", "echo × 1.4", 1.0, 0, 0.8, 0.05, 0.01),
)


def an_audition_offer(key, operator, terms=None, kind=Audition, **changes):
    """The offer; `terms` are changes to its terms of pay, which are those of this kind."""
    offer = an_offer(
        key, operator,
        contract=kind.kind, formula=kind.formula, dropping_out=kind.dropping_out, calibrated=True,
        rounds=5, expected_loss=0.5, loss_error=0.05, recipe=RECIPE, audition_seconds=3600.0,
        samples=50, batch_size=4, labeling_cost=60.0, sample_cost=0.5, audition_cost=2.0, lies=LIES,
        pay=(JOINT_TERMS if kind is JointAudition else TERMS) | (terms or {}),
    )  # fmt: skip
    return signed_offer(changed(offer, **changes), operator)


def an_audition_receipt(folder, offer, answer, operator, *, solo_loss, reason=None, loss=0.79, taken=4):
    """A receipt from the operator's book; the others shift the expected solo loss by half a standard deviation."""
    job, name = offer.job, offer.client.name
    passed = passes(offer, solo_loss, 0.5)
    result = {
        "client": name, "offer": offer.hash, "model": None if solo_loss is None else "ef" * 32,
        "salt": None if solo_loss is None else "12" * 32, "solo_loss": solo_loss, "level_shift": 0.5,
        "passed": passed, "reason": reason,
    }  # fmt: skip
    tested = {
        "model": "cd" * 32, "test_set": TEST_SET, "samples": 2000, "secret": SECRET, "loss": loss, "accuracy": 0.9,
        "raw_loss": loss + 0.1, "calibration": {"factor": 1.5, "biases": [0.0] * len(job.classes)},
    }  # fmt: skip
    with open_ledger(Path(folder) / "ledger.db", operator) as book:
        book.append(job.name, "job", "job", {"commitment": job.commitment})
        book.append(job.name, "offer", offer.key, offer.envelope())
        book.append(job.name, "answer", offer.key, answer)
        committed = {"client": name, "offer": offer.hash, "commitment": "34" * 32}
        book.append(job.name, "commitment", name, committed)
        book.append(job.name, "audition", name, result)
        for round_ in range(job.rounds if passed else 0):
            missing = [] if round_ < taken else [name]
            book.append(job.name, "round", str(round_ + 1), a_round(offer, round_ + 1, missing))
        book.append(job.name, "test", "test", tested)
        settle(book, job.name)
        rows = book.entries()
        return signed_receipt(offer, job_view(job.name, rows), rows, operator)


class AuditionedAda(Ada):
    """Ada, with an offer of an audition."""

    def gets_offer(self, **changes):
        offer = an_audition_offer(self.key, self.operator, **changes)
        participant_folder.put_offer(self.home, offer)
        return offer

    def gets_receipt(self, offer, **facts):
        answer = participant_folder.read_answer(self.home, offer)
        paper = an_audition_receipt(self.folder, offer, answer, self.operator, **facts)
        participant_folder.put_receipt(self.home, paper, offer.job.name)
        return paper


class NarrowGate(Plans):
    """Plans in which too good a loss for honest people is well above 0; in such a small job it would be below 0."""

    def __call__(self, job, side, make=DataJob.plan):
        plan = super().__call__(job, side, make)
        return replace(plan, contract=replace(plan.contract, gate=np.full(len(plan.clients), 0.2)))


@pytest.fixture
def from_elsewhere(monkeypatch):
    """A function that sets the solo model that Cleo, the third client, sends."""
    honest, given = participant.audition_model, {}

    def audition_model(own, model, *arguments, client, **more):
        if client == 2 and "model" in given:
            return given["model"]
        return honest(own, model, *arguments, client=client, **more)

    monkeypatch.setattr(participant, "audition_model", audition_model)

    def give(model):
        given["model"] = model

    return give


def good_model(side):
    data = side.pilot.data
    everything = np.concatenate([data.features, side.test.features]), np.concatenate([data.labels, side.test.labels])
    return train_alone(side.pilot.model, *everything, Recipe(800, 64, 0.5, 1e-3, 0), 1)
