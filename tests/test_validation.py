"""The model after a round is tried on the operator's samples: what is refused, and that honest rounds are not."""

from types import SimpleNamespace

import numpy as np
import pytest

from truthfl.federation.protocol.validation import Validation, noise_of, take_single_reports, validation_of
from truthfl.learning import round_limits
from truthfl.learning.client_changes import ClientChanges
from truthfl.learning.engines import Run, make_engine
from truthfl.learning.federations import Data, ModelChoice, build_federation, clients_federation
from truthfl.learning.report_bound import measure_report_bounds
from truthfl.ledger.round_terms import bound_of_round
from truthfl.mechanism.setting import Training

DATA = Data(source="digits", pilot_samples=600, test_samples=300)
SIZES, ROUNDS, BATCH, STEP = (120, 120, 150, 150), 40, 20, 0.5
TRAINING, WEIGHT = Training(ROUNDS, 1, STEP), np.array(SIZES) / sum(SIZES)
BATCHES = np.full(len(SIZES), float(BATCH))


@pytest.fixture(scope="module")
def side():
    return build_federation(DATA, ModelChoice(), SIZES, TRAINING)


@pytest.fixture(scope="module")
def limits(side):
    who = round_limits.WhoTrains(SIZES, BATCHES, WEIGHT, np.ones(len(SIZES)))
    return round_limits.measure_round_limits(side, TRAINING, who)


@pytest.fixture(scope="module")
def bounds(side):
    return measure_report_bounds(side, BATCHES)


class Job:
    """A job of fresh clients, whose rounds are validated."""

    def __init__(self, side, limits, seed):
        self.federated, self.test = clients_federation(DATA, ModelChoice(), SIZES, TRAINING, split_seed=seed)
        run = Run(seed, STEP, BATCHES.astype(np.int64), np.ones(len(SIZES)), self.federated.true_labels())
        self.engine = make_engine(self.federated)
        self.changes = ClientChanges(self.federated, self.engine, run)
        self.validation = Validation(self.federated.model, side.pilot.data, limits)
        self.params = self.federated.model.init(seed)
        self.changed = 0

    def honest(self, round_):
        return self.changes.of(self.engine.pack(self.params), round_, np.arange(len(SIZES)))

    def round(self, round_, spoil=None):
        """One round; `spoil(job, changes)` changes them. Return why the model was not taken."""
        changes = self.honest(round_)
        if spoil:
            spoil(self, changes)
        candidate = self.params + (WEIGHT[:, None].astype(np.float32) * changes).sum(axis=0)
        fault = self.validation.judge(self.params, candidate, self.changed)
        if fault is None:
            self.params, self.changed = candidate, self.changed + 1
        return fault

    @property
    def loss(self):
        return self.federated.model.loss(self.params, self.test.features, self.test.labels)


def test_honest_rounds_of_fresh_clients_are_taken(side, limits):
    """Two thousand of them, of clients, draws and models that the limits were not measured on."""
    for seed in range(50):
        job = Job(side, limits, 100 + seed)
        assert [job.round(round_) for round_ in range(ROUNDS)] == [None] * ROUNDS


def against(share, bounds):
    """A report of this share of the round's bound, straight up the loss."""

    def spoil(job, changes):
        up = -changes.mean(axis=0)
        changes[0] = up * (share * bound_of_round(bounds, job.changed) / np.linalg.norm(up))

    return spoil


def test_one_report_below_the_bound_does_not_ruin_the_model(side, limits, bounds):
    """In the last round, and in all of them; and when it ends, honest rounds go on from where the model stayed."""
    honest, last, always, later = (Job(side, limits, 7) for _ in range(4))
    for round_ in range(ROUNDS):
        honest.round(round_)
        last.round(round_, against(0.8, bounds) if round_ == ROUNDS - 1 else None)
        always.round(round_, against(0.8, bounds))
        if round_ < ROUNDS // 2:
            later.round(round_, against(1.0, bounds))
    start = later.changed
    assert [later.round(round_) for round_ in range(ROUNDS // 2, ROUNDS)] == [None] * (ROUNDS // 2)
    assert later.changed == start + ROUNDS // 2
    assert last.loss < honest.loss + limits.rise.at(ROUNDS - 1, 1.0)
    allowed = max(limits.drift.at(changed, 1.0) for changed in range(always.changed))
    assert always.validation.loss(always.params) < always.validation.lowest + allowed
    assert later.loss < always.loss


def test_a_sum_that_is_far_longer_than_the_last_is_refused(side, limits):
    """Also if it does no harm: straight along a direction that the loss hardly sees."""
    job = Job(side, limits, 8)
    for round_ in range(20):
        assert job.round(round_) is None
    blind = np.zeros_like(job.params)
    blind[0] = 6.0  # a pixel that is dark in all digits
    assert job.validation.loss(job.params + blind) == pytest.approx(job.validation.loss(job.params), abs=0.05)
    assert "has length" in job.validation.judge(job.params, job.params + blind, job.changed)
    assert "NaN" in job.validation.judge(job.params, job.params * np.nan, job.changed)


def test_single_reports_that_spoil_the_model_are_refused_with_what_they_did(side, limits):
    """Two of four; the others are combined. Where no report does it alone, the model stays and nobody is refused."""
    job = Job(side, limits, 9)
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

        return take_single_reports(job.validation, job.params, reports, weights, combine, job.changed)

    honest = dict(zip(names, changes, strict=True))
    taken = combined(honest)
    assert (taken.refused, taken.fault) == ({}, None)
    spoiled = combined(honest | {"Ben": 40 * harm, "Dora": 60 * harm})
    assert list(spoiled.refused) == ["Dora", "Ben"]
    assert all("with this report alone, the loss on the operator's samples" in why for why in spoiled.refused.values())
    assert spoiled.fault is None
    assert np.abs(spoiled.params - combined({name: honest[name] for name in ("Ada", "Cleo")}).params).max() < 1e-6
    rise = 1.0
    while job.validation.fault(job.params, job.params + np.float32(weights["Dora"] * rise) * harm, job.changed) is None:
        rise *= 1.1
    nobody = combined(dict.fromkeys(names, np.float32(0.8 * rise) * harm))
    assert nobody.refused == {}
    assert nobody.fault is not None
    assert np.array_equal(nobody.params, job.params)


def test_fewer_reports_are_noisier():
    assert noise_of([0.25] * 4, [0.25] * 4, rescales=True) == 1.0
    assert noise_of([0.25] * 4, [0.25], rescales=True) == pytest.approx(2.0)
    assert noise_of([0.25] * 4, [0.25], rescales=False) == 1.0
    assert noise_of([0.25] * 4, [], rescales=True) == 1.0


def test_limits_are_measured_once_for_all_starts_of_the_server(side, tmp_path, monkeypatch):
    offers = [
        SimpleNamespace(client=SimpleNamespace(name=str(k), samples=size, batch_size=BATCH, participation=1.0))
        for k, size in enumerate(SIZES)
    ]
    agreement = SimpleNamespace(terms=SimpleNamespace(rounds=ROUNDS, local_steps=1, step_size=STEP), offers=offers)
    weights = {str(k): float(weight) for k, weight in enumerate(WEIGHT)}
    file = tmp_path / "limits" / "job-1"
    first = validation_of(side, side.pilot.model, agreement, weights, file)
    monkeypatch.setattr(round_limits, "honest_job", None)
    again = validation_of(side, side.pilot.model, agreement, weights, file)
    assert again.limits.rise.at(17, 1.3) == first.limits.rise.at(17, 1.3)
    file.write_bytes(b"{")
    with pytest.raises(TypeError):
        validation_of(side, side.pilot.model, agreement, weights, file)
