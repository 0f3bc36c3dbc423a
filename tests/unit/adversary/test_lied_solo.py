"""Lies in the audition: solo models of liars, the level that honest others set, and what such lies gain."""

from dataclasses import replace

import numpy as np
import pytest

from truthfl.adversary import measure
from truthfl.adversary.measure import (
    Case,
    Honest,
    Lied,
    Payer,
    SoloTerms,
    gains,
    honest_shifts,
    lied_solo_losses,
    make_split,
    train_lies,
)
from truthfl.adversary.strategy import TRUTH, LiePoint, LieSpace, ReportKind
from truthfl.contracts.audition.joint import JointAudition
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.setting import Clients, Training
from truthfl.contracts.solo import peer_shifts
from truthfl.learning.data.datasets import small_digits
from truthfl.learning.data.partition import Federated, iid_partition
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.people.behaviour import SoloRecipe, Unlabeled
from truthfl.learning.solo import Recipe, solo_losses, train_alone

TRAIN, TEST = small_digits().split_off(400, 1)
RECIPE = Recipe(40, 32, 0.5, 0.001, 0)
TRAINING = Training(6, step_size=0.5)
LABELS = 60
FEDERATED = Federated(
    SoftmaxRegression(64, 10, 0.001), TRAIN, iid_partition(len(TRAIN), (LABELS,) * 4, seed=4), TRAINING
)
SPLIT = make_split(FEDERATED, TEST, TRAINING, 4)
TERMS = SoloTerms(RECIPE, np.full(4, 0.6), np.full(4, 0.05))
FEW = LiePoint(labels=0.3)
RANDOM = LiePoint(labels=0.0, rest=Unlabeled.DRAWN)
ECHO = LiePoint(report=ReportKind.ECHO).canonical(solo=True)


def honest_loss(client):
    rows = SPLIT.federated.partition.rows_of(client)
    data = SPLIT.federated.data
    own = train_alone(FEDERATED.model, data.images[rows], data.labels[rows], RECIPE, 0)
    return float(solo_losses(FEDERATED.model, own[None], TEST, 0)[0])


def test_solo_losses_of_lies():
    points = [TRUTH, FEW, RANDOM, ECHO, LiePoint(labels=1.4), LiePoint(recipe=SoloRecipe.LONGER)]
    cases = [(0, 5), (2, 6)]
    losses = lied_solo_losses(SPLIT, TERMS, points, cases)
    assert losses.shape == (6, 2)
    np.testing.assert_allclose(losses[0], [honest_loss(0), honest_loss(2)], rtol=1e-3)
    np.testing.assert_array_equal(
        losses[3], losses[0]
    )  # a client who labels honestly has an honest solo model, whatever they report
    assert (losses[1] > losses[0] + 0.1).all()
    assert (losses[2] > losses[1]).all()
    assert (losses[4] < losses[0]).all()
    assert not np.allclose(losses[5], losses[0])


def test_the_level_is_set_by_honest_others():
    excess = np.array([(honest_loss(client) - 0.6) / 0.05 for client in range(4)])
    np.testing.assert_allclose(honest_shifts(SPLIT, TERMS, [3, 1]), peer_shifts(excess)[[3, 1]], rtol=1e-2)
    three = TERMS.of_clients(np.array([2, 0, 3]))
    np.testing.assert_array_equal(three.level, TERMS.level[[2, 0, 3]])


def test_the_level_of_many_is_that_of_some_who_stand_for_them(monkeypatch):
    monkeypatch.setattr(measure, "MOST_PEERS", 2)
    excess = np.array([(honest_loss(client) - 0.6) / 0.05 for client in (0, 1, 3)])  # 0, 3 and the liar
    np.testing.assert_allclose(honest_shifts(SPLIT, TERMS, [1]), peer_shifts(excess)[[1]], rtol=1e-2)


def test_each_solo_model_is_trained_once():
    known = {}
    first = lied_solo_losses(SPLIT, TERMS, [TRUTH, FEW], [(0, 5), (2, 6)], known=known)
    assert len(known) == 4
    again = lied_solo_losses(SPLIT, TERMS, [FEW, ECHO], [(2, 6)], known=known)
    assert len(known) == 4
    assert again[:, 0].tolist() == [first[1, 1], first[0, 1]]
    honest_shifts(SPLIT, TERMS, [0], known=known)  # of all four clients; two of them are known
    assert len(known) == 6


def test_runs_with_and_without_solo_models():
    cases = [Case(0, 5), Case(2, 6)]
    with_solo = train_lies(SPLIT, np.full(4, 8.0), [TRUTH, FEW], cases, solo_terms=TERMS)
    without = train_lies(SPLIT, np.full(4, 8.0), [TRUTH, FEW], cases)
    np.testing.assert_array_equal(with_solo.loss, without.loss)
    assert np.isfinite(with_solo.solo).all()
    assert np.isnan(without.solo).all()
    assert (without.shift == 0).all()


FIXED = {
    "batch_size": 8, "labels": 60, "solo_level": 0.6, "solo_spread": 0.05, "gate": 0.19, "label_slope": 200,
    "label_base": 80, "label_cap": 120, "audition_pay": 5, "computing_base": 10,
}  # fmt: skip
JOINT = FIXED | {"joint_slope": 100, "joint_cap": 30, "joint_constant": 0.4, "joint_curve": 24, "total_labels": 240}


def audition(kind, terms):
    return kind(**{name: np.full(4, float(value)) for name, value in terms.items()})


@pytest.mark.parametrize(("kind", "terms", "slope"), [(JointAudition, JOINT, 100), (Audition, FIXED, 0)])
def test_gains_count_the_solo_model_the_gate_and_the_computing_that_is_saved(kind, terms, slope):
    clients = Clients(weight=[0.25] * 4, gradient_variance=1.0, sample_cost=0.1, labeling_cost=60.0, dataset_size=60)
    payer = Payer(audition(kind, terms), clients, TRAINING, audition_cost=5.0)
    unknown, one = np.full(1, np.nan), np.ones(1)
    honest = Honest(np.array([2]), np.array([0]), 0.5 * one, unknown, unknown, unknown, unknown, 0.6 * one, 0.0 * one)
    points = [FEW, RANDOM, ECHO, LiePoint(recipe=SoloRecipe.LONGER)]
    lied = Lied(
        loss=np.array([[0.52], [0.9], [0.53], [0.5]]),
        delivered=np.ones((4, 1)),
        joined=np.full((4, 1), np.nan),
        solo=np.array([[0.7], [2.3], [0.6], [0.59]]),
    )
    found = gains([payer], points, lied, honest)
    computing = 6 * 0.1 * 8
    assert found.cost == pytest.approx([60 + computing + 5])
    assert found.pay == pytest.approx([80 + 10])
    honest_left = 90 - 65 - computing
    few = (80 - 200 * 0.1 + 10 - slope * 0.02) - (18 + computing + 5)
    stopped = 0.0 - 5.0  # no labels, no rounds, no pay; the solo model costs the same
    echo = (80 + 10 - slope * 0.03) - (60 + 5)
    longer = (80 + 2 + 10) - (60 + computing + 20)
    np.testing.assert_allclose(found.gain[:, 0], np.array([few, stopped, echo, longer]) - honest_left)


def test_the_family_has_recipes_and_labels_without_computing_where_solo_models_are_tested():
    space = LieSpace.of_job(np.full(4, 8.0), np.full(4, 60), 1.2, solo=True)
    drawn = space.draw(np.random.default_rng(0), 400)
    assert {point.recipe for point in drawn} == set(SoloRecipe)
    assert any(not point.computes and point.labels == 1 for point in drawn)
    assert all(LiePoint.of_document(point.document()) == point for point in drawn)
    near = [space.neighbour(np.random.default_rng(k), drawn[0]) for k in range(40)]
    assert len({point.words for point in near}) > 10
    plain = replace(space, solo=False).draw(np.random.default_rng(0), 200)
    assert {point.recipe for point in plain} == {SoloRecipe.PRESCRIBED}
    assert all(point.labels == 0 for point in plain if not point.computes)
    assert ECHO.words == "all labeled, echo × 1"
    assert LiePoint(recipe=SoloRecipe.LONGER).kind == "other recipe"
    assert LiePoint(recipe=SoloRecipe.LONGER).words == "solo model trained longer"
