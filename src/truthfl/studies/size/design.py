"""Design and prices of the study of sizes: the labels of one draw, cut into equal parts for n clients.

A draw is a random order of the pool. Its first labels are used for every number of clients, so federations of all
sizes have the same labels in total.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from truthfl.adversary.measure import Split
from truthfl.adversary.strategy import TRUTH, LiePoint, ReportKind
from truthfl.contracts.audition.level import WINDOW
from truthfl.contracts.setting import FloatArray, Training
from truthfl.errors import InputError
from truthfl.job import DataJob, read_job
from truthfl.learning.data.federations import Data, ModelChoice, sample_sets
from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.models.model import Model
from truthfl.learning.people.behaviour import SoloRecipe, Unlabeled
from truthfl.learning.tasks.task_choice import PICTURES

BUILT_IN = "mnist"
FITTED_CLIENTS = 10  # of the federation on which the loss model is fitted


@dataclass(frozen=True)
class Money:
    """Prices of the built-in job, in its money.

    loss_value    κ, the value of one unit of loss to the server
    label_cost    u, of one label
    sample_cost   c_p, of one sample in one round's gradient
    confidence    with which the margin keeps honest pay from falling below cost
    test_draws    draws from the test set that settle pay by the joint loss
    most_pay      the audition's largest cap, as a multiple of cost
    """

    loss_value: float
    label_cost: float
    sample_cost: float
    confidence: float
    test_draws: int
    most_pay: float


@dataclass(frozen=True)
class SizeDesign:
    """The federations and the number of draws.

    data            source and test set; the other samples are the pool from which clients' samples are drawn
    sizes           numbers of clients
    total_labels    of all clients; each has an equal part of it
    batch_of_all    samples of all clients in one round. With more clients than this, each computes on one sample, and
                    takes part in so few rounds that the average is this number
    pilot_draws     draws on which the server measures levels and spreads, and chooses the best lie
    measured_draws  other draws, on which the best lie is measured
    liars           clients of a draw whose lies are trained jointly, one at a time
    solo_liars      clients of a draw whose lies are trained alone
    absences        clients of a draw who are left out, one at a time, for the worth of their work
    solo_clients    pilot clients whose solo models are trained
    seed            of the pool, the draws and the runs
    """

    data: Data
    model: ModelChoice
    money: Money
    sizes: tuple[int, ...]
    total_labels: int
    batch_of_all: int
    rounds: int
    pilot_draws: int
    measured_draws: int
    liars: int
    solo_liars: int
    absences: int
    solo_clients: int
    seed: int

    def __post_init__(self) -> None:
        for size in (*self.sizes, FITTED_CLIENTS):
            if self.total_labels % size or (size < self.batch_of_all and self.batch_of_all % size):
                raise InputError(
                    f"{self.total_labels} labels or batches of {self.batch_of_all} do not divide evenly among {size} "
                    "clients; choose numbers that do."
                )

    @property
    def draws(self) -> range:
        """Numbers of all draws, those of the pilot first."""
        return range(self.pilot_draws + self.measured_draws)

    def labels_each(self, size: int) -> int:
        """Labels of each of this many clients."""
        return self.total_labels // size

    def batch_each(self, size: int) -> int:
        """The batch of each of this many clients."""
        return max(self.batch_of_all // size, 1)

    def can_label_fewer(self, size: int) -> bool:
        """Whether each of this many clients could label fewer samples, but not none; else solo losses have no slope."""
        return round(self.labels_each(size) / WINDOW) < self.labels_each(size)

    def participation(self, size: int) -> float:
        """q: the chance with which each of this many clients takes part in a round."""
        return min(self.batch_of_all / size, 1.0)

    def settings(self) -> dict[str, Any]:
        """The settings that all work items share, as JSON values."""
        return {
            "data": asdict(self.data),
            "model": self.model.document(),
            "total_labels": self.total_labels,
            "batch_of_all": self.batch_of_all,
            "rounds": self.rounds,
        }


def size_design(*, quick: bool = False, source: str = BUILT_IN, seed: int = 0) -> SizeDesign:
    """The full study, or a short version that only shows what the full one does.

    source  "mnist": 5,000 built-in digits; or a folder with the four files of MNIST
    """
    job = read_job()
    assert isinstance(job, DataJob)
    server, people = job.server, job.clients
    full = SizeDesign(
        data=Data(source=source, split="iid", pilot_samples=1, test_samples=1000, seed=seed + 1),
        model=job.model,
        money=Money(
            loss_value=server.loss_value,
            label_cost=float(np.median(people.label_cost)),
            sample_cost=float(np.median(people.sample_cost)),
            confidence=server.confidence,
            test_draws=server.test_samples,
            most_pay=server.most_pay,
        ),
        sizes=(3, 10, 30, 100, 300, 1000, 3000),
        total_labels=3000,
        batch_of_all=300,
        rounds=job.training.rounds,
        pilot_draws=8,
        measured_draws=16,
        liars=2,
        solo_liars=6,
        absences=40,
        solo_clients=120,
        seed=seed,
    )
    if not quick:
        return full
    return replace(
        full,
        sizes=(3, 10, 30, 300),
        total_labels=300,
        batch_of_all=150,
        rounds=20,
        pilot_draws=2,
        measured_draws=2,
        liars=1,
        solo_liars=1,
        absences=2,
        solo_clients=3,
    )


MORE_LABELS = 0.5  # further samples that a client could label, as a share of theirs


@dataclass(frozen=True, eq=False)
class Cut:
    """The federation of equal clients on one draw, with further samples of the pool that nobody holds.

    batches  (N,) assigned batches
    """

    split: Split
    batches: FloatArray

    @property
    def federated(self) -> Federated:
        return self.split.federated

    @property
    def test(self) -> LabeledSamples:
        return self.split.test


def pool_size(data: Data, total_labels: int) -> int:
    """The size of the pool; `InputError` if it is too small for this many labels and some more."""
    sets = sample_sets(PICTURES, data.source, data.pilot_samples, data.test_samples, data.seed)
    size, needed = len(sets.clients), round(1.2 * total_labels)
    if size < needed:
        raise InputError(
            f"{data.source} has {size:,} samples beside the test set; {total_labels:,} labels of all clients and some "
            f"that nobody holds need {needed:,}."
        )
    return size


def pool_and_test(data: Data, model: ModelChoice) -> tuple[LabeledSamples, LabeledSamples, Model]:
    """The samples to label, the test set, and the model."""
    sets = sample_sets(PICTURES, data.source, data.pilot_samples, data.test_samples, data.seed)
    return sets.clients, sets.test, model.for_samples(sets.clients, sets.task)


def cut(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    total_labels: int,
    batch_of_all: int,
    rounds: int,
    step_size: float,
    size: int,
    draw: int,
) -> Cut:
    """The federation of `size` clients on this draw."""
    pool, test, network = pool_and_test(Data(**data), ModelChoice(**model))
    order = np.random.default_rng([int(data["seed"]), draw]).permutation(len(pool))
    labels = total_labels // size
    spare = min(max(round(MORE_LABELS * labels), 1), len(pool) - total_labels)
    federated = Federated(
        network,
        pool.take(order[: total_labels + spare]),
        Partition(np.arange(total_labels), labels * np.arange(size + 1)),
        Training(rounds, 1, step_size),
        participation=min(batch_of_all / size, 1.0),
    )
    further = total_labels + np.arange(spare)
    return Cut(Split(federated, test, (further,) * size), np.full(size, float(max(batch_of_all // size, 1))))


FEWER = (0.1, 0.25, 0.5, 0.75, 0.9)  # shares of labels made; the rest is left out
MORE = 1.25
HALF = 0.5
LONGER_SHARE = 0.75  # of labels, if the solo model is trained longer


def lies(labels: int) -> tuple[LiePoint, ...]:
    """The truth and the lies of a client with this many labels; shares of labels are rounded to whole labels.

    They include the best lie of each kind that `truthfl verify` finds at ten clients. With few labels some of them are
    the same; these are tried once.
    """
    half = _whole(HALF, labels)
    fewer = [LiePoint(labels=_whole(share, labels)) for share in FEWER]
    longer = LiePoint(labels=_whole(LONGER_SHARE, labels), recipe=SoloRecipe.LONGER)
    derived = [
        LiePoint(labels=half, rest=rest) for rest in (Unlabeled.PREDICTED, Unlabeled.OWN_MODEL, Unlabeled.NEAREST)
    ]
    points = [
        TRUTH,
        LiePoint(labels=0.0, rest=Unlabeled.PREDICTED),
        LiePoint(labels=0.0, rest=Unlabeled.DRAWN),
        LiePoint(labels=0.0, rest=Unlabeled.DRAWN, scale=0.02, last_scale=0.02),
        LiePoint(labels=0.0, report=ReportKind.LAST_BIT),
        LiePoint(labels=0.0, report=ReportKind.ECHO),
        *(point for point in (*fewer, longer, *derived) if 0.0 < point.labels < 1.0),
        LiePoint(labels=_whole(MORE, labels)),
        LiePoint(report=ReportKind.LAST_BIT),
        LiePoint(batch=0.5),
        LiePoint(batch=2.0),
    ]
    return tuple(dict.fromkeys(point.canonical(solo=True) for point in points))


def _whole(share: float, labels: int) -> float:
    """The share as a number of whole labels; at least one, and not the honest number."""
    number = round(share * labels)
    if number == labels:
        number += -1 if share < 1 else 1
    return max(number, 0) / labels
