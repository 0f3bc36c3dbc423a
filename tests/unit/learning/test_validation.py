"""The model after a round is tried on the operator's samples: what is refused, and that honest rounds are not."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.bare_rounds import BareRounds
from truthfl.contracts.setting import Training
from truthfl.federation.protocol.validation import RECENT, Validation, noise_of, take_single_reports
from truthfl.learning.data.federations import Data, ModelChoice, build_federation, clients_federation
from truthfl.learning.pilot.honest_rounds import (
    HonestRounds,
    WhoTrains,
    honest_jobs,
    honest_lengths,
    measure_report_bounds,
    moments_of,
    pilot_rounds,
)
from truthfl.learning.training.aggregation import MEAN, new_combiner, with_momentum
from truthfl.learning.training.rounds import ClientChanges, make_engine
from truthfl.learning.training.run import Run
from truthfl.ledger.terms import bound_of_round

DATA = Data(source="mnist", pilot_samples=2000, test_samples=1000)
SIZES, ROUNDS, BATCH, STEP = (200,) * 4, 40, 70, 1.2  # as the plan of the built-in job for four
TRAINING, WEIGHT = Training(ROUNDS, 1, STEP), np.full(4, 0.25)
BATCHES = np.full(len(SIZES), float(BATCH))


@pytest.fixture(scope="module")
def side():
    return build_federation(DATA, ModelChoice(), SIZES, TRAINING)


@pytest.fixture(scope="module")
def honest_rounds(side):
    return pilot_rounds(side, TRAINING, WhoTrains(SIZES, BATCHES, WEIGHT, np.ones(len(SIZES))), new_combiner(MEAN))


@pytest.fixture(scope="module")
def bounds(side):
    return measure_report_bounds(honest_jobs(side, BATCHES))


class Job:
    """A job of fresh clients, whose rounds are validated."""

    def __init__(self, honest_rounds, seed, momentum=0.0):
        self.federated, self.test = clients_federation(DATA, ModelChoice(), SIZES, TRAINING, split_seed=seed)
        run = Run(seed, STEP, BATCHES.astype(np.int64), np.ones(len(SIZES)), self.federated.true_labels())
        self.engine = make_engine(self.federated)
        self.changes = ClientChanges(self.federated, self.engine, run)
        self.validation = Validation(honest_rounds)
        self.params = self.before = self.federated.model.init(seed)
        self.changed, self.momentum = 0, momentum

    def honest(self, round_):
        return self.changes.of(self.engine.pack(self.params), round_, np.arange(len(SIZES)))

    def round(self, round_, spoil=None):
        """One round; `spoil(job, changes)` changes them. Return why the model was not taken."""
        changes = self.honest(round_)
        if spoil:
            spoil(self, changes)
        candidate = self.params + (WEIGHT[:, None].astype(np.float32) * changes).sum(axis=0)
        fault = self.validation.judge(self.params, candidate, round_)
        if fault is None:
            moved = with_momentum(candidate, self.params, self.before, self.momentum)
            self.params, self.before, self.changed = moved, self.params, self.changed + 1
        return fault

    @property
    def accuracy(self):
        return self.federated.model.accuracy(self.params, self.test.features, self.test.labels)


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_honest_rounds_of_fresh_clients_are_practically_always_taken(honest_rounds, momentum):
    """Hundreds of rounds of clients, draws and models that the pilot has not seen; a skipped one only costs a round."""
    refused = 0
    for seed in range(10 if momentum else 20):
        job = Job(honest_rounds, 100 + seed, momentum)
        refused += sum(job.round(round_) is not None for round_ in range(ROUNDS))
    assert refused <= (2 if momentum else 4)


class Refusing:
    """Takes no model after the second round."""

    def judge(self, before, candidate, round_, noise):  # noqa: ARG002
        return "the test says so" if round_ == 1 else None

    def faults_of(self, *_):
        return {}

    def state(self):
        return {}


def test_a_round_that_is_refused_ends_momentum(tmp_path):
    """The third round is then that of a job without momentum, in which the first and the third one add reports."""
    models = {}
    for momentum in (0.0, 0.5):
        job = BareRounds(tmp_path / str(momentum), 3, rounds=4, masked=False, momentum=momentum)
        _, view = job.go(validation=Refusing())
        assert [entry.document.get("refused") for entry in view.rounds] == [None, "the test says so", None, None]
        models[momentum] = [entry.document["model"] for entry in view.rounds]
    same = [one == other for one, other in zip(*models.values(), strict=True)]
    assert same == [True, True, True, False]


def test_the_lengths_of_honest_reports_are_measured_with_momentum(side):
    """Up to the second round it changes nothing."""
    moving = replace(side, pilot=replace(side.pilot, training=replace(TRAINING, momentum=0.5)))
    still, moved = (honest_lengths(honest_jobs(one, BATCHES, 1, 1)) for one in (side, moving))
    same = (still == moved).all(axis=1)
    assert moments_of(ROUNDS)[same].tolist() == [0, 1]


def against(share, bounds, *, model=False):
    """A report of this share of the round's bound, against what its sender learned, or against the whole model."""

    def spoil(job, changes):
        up = -job.params if model else -changes[0]
        changes[0] = up * (share * bound_of_round(bounds, job.changed) / np.linalg.norm(up))

    return spoil


def test_one_report_below_the_bound_does_not_ruin_the_model(honest_rounds, bounds):
    """In the last round, and in every second one: such rounds are skipped, and the others train."""
    honest, last, turns, back = (Job(honest_rounds, 7) for _ in range(4))
    spoil, reset, skipped = against(0.8, bounds), against(0.8, bounds, model=True), []
    for round_ in range(ROUNDS):
        honest.round(round_)
        last_fault = last.round(round_, spoil if round_ == ROUNDS - 1 else None)
        back.round(round_, reset if round_ % 2 else None)
        if turns.round(round_, spoil if round_ % 2 else None) is not None:
            skipped.append(round_)
    assert last_fault is not None
    assert "where honest rounds from this model stay below" in last_fault
    assert honest.accuracy > 0.84
    assert last.accuracy > honest.accuracy - 0.02
    assert turns.accuracy > honest.accuracy - 0.08
    assert back.accuracy > honest.accuracy - 0.1
    assert len(skipped) >= ROUNDS // 2 - 2
    assert all(round_ % 2 for round_ in skipped)


def test_a_server_that_is_started_again_judges_as_if_it_had_not(honest_rounds, bounds):
    one, other = (Job(honest_rounds, 11) for _ in range(2))
    for round_ in range(20):
        again = Validation(honest_rounds)
        again.restore(other.validation.state())
        other.validation = again
        spoil = against(0.3, bounds) if round_ % 4 == 3 else None
        assert one.round(round_, spoil) == other.round(round_, spoil)
        assert one.validation.state() == other.validation.state()
    assert np.array_equal(one.params, other.params)


class ScatteredRounds:
    """Honest rounds one of which moves a model far; no model has a loss."""

    def loss(self, _):
        return 0.0

    def after(self, *_):
        return HonestRounds(np.zeros(8), np.array([0.1] * 7 + [1.0]))


def test_a_model_is_not_moved_far_beyond_what_recent_rounds_did():
    """Also where pilot clients differ so much that their rounds allow it; what one of them did, is taken."""
    before = np.zeros(1, dtype=np.float32)

    def judged(validation, length, noise=1.0):
        return validation.judge(before, before + np.float32(length), 0, noise)

    assert judged(Validation(ScatteredRounds()), 2.0) is None
    validation = Validation(ScatteredRounds())
    for _ in range(RECENT):
        assert judged(validation, 0.1) is None
    again = Validation(ScatteredRounds())
    again.restore(validation.state())
    assert "the model would move by 2, where the last rounds moved it by up to 0.1" in judged(again, 2.0)
    assert judged(again, 2.0, noise=5.0) is None  # so few reports were there
    assert judged(validation, 1.4) is None
    assert len(validation.recent) == RECENT


def test_a_model_that_is_none_is_not_taken(honest_rounds):
    job = Job(honest_rounds, 8)
    assert "NaN" in job.validation.judge(job.params, job.params * np.nan, 0)
    assert job.validation.judge(job.params, job.params, 0) is None


def test_single_reports_that_spoil_the_model_are_refused_with_what_they_did(honest_rounds):
    """Two of four; the others are combined. Where no report does it alone, the model stays and nobody is refused."""
    job = Job(honest_rounds, 9)
    for round_ in range(30):
        job.round(round_)
    changes = job.honest(30)
    harm = -changes.mean(axis=0) / np.linalg.norm(changes.mean(axis=0))
    names = ["Ada", "Ben", "Cleo", "Dora"]
    weights = dict(zip(names, WEIGHT.tolist(), strict=True))

    def combined(reports):
        def combine(kept):
            change = sum(np.float32(weights[name]) * reports[name] for name in kept)
            own = [weights[name] for name in kept]
            return job.params + change, noise_of(list(weights.values()), own, rescales=False)

        return take_single_reports(job.validation, job.params, reports, weights, combine, 30)

    honest = dict(zip(names, changes, strict=True))
    taken = combined(honest)
    assert (taken.refused, taken.fault) == ({}, None)
    spoiled = combined(honest | {"Ben": 40 * harm, "Dora": 60 * harm})
    assert list(spoiled.refused) == ["Dora", "Ben"]
    assert all("with this report alone, the loss on the operator's samples" in why for why in spoiled.refused.values())
    assert spoiled.fault is None
    assert np.abs(spoiled.params - combined({name: honest[name] for name in ("Ada", "Cleo")}).params).max() < 1e-6
    length = 1.0
    while not job.validation.faults_of(job.params, {"Dora": np.float32(length) * harm}, weights, 30):
        length *= 1.1
    nobody = combined(dict.fromkeys(names, np.float32(0.8 * length) * harm))
    assert nobody.refused == {}
    assert nobody.fault is not None
    assert np.array_equal(nobody.params, job.params)


def test_fewer_reports_are_noisier():
    assert noise_of([0.25] * 4, [0.25] * 4, rescales=True) == 1.0
    assert noise_of([0.25] * 4, [0.25], rescales=True) == pytest.approx(2.0)
    assert noise_of([0.25] * 4, [0.25], rescales=False) == 1.0
    assert noise_of([0.25] * 4, [], rescales=True) == 1.0
