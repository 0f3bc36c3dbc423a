"""Estimates from gains in cases: means with intervals over splits, ex post, elicited labels and batch."""

import numpy as np
import pytest

from truthfl import Clients, LossModel, Training, lceme
from truthfl.adversary.measure import Gains, Honest, Payer
from truthfl.adversary.strategy import LiePoint
from truthfl.contracts.deviation import best_deviation
from truthfl.learning.people.behaviour import Unlabeled
from truthfl.studies.verify.regret import (
    BATCH_CURVE,
    LABEL_CURVE,
    elicited_batch,
    elicited_labels,
    ex_post_regret,
    mean_of_group,
    mean_share,
    share_below_cost,
)

RANDOM = np.random.default_rng(7)


def some_gains(gain, pay=100.0, cost=80.0):
    gain = np.asarray(gain, dtype=float)
    return Gains(gain, np.full(gain.shape[1], pay), np.full(gain.shape[1], cost))


def test_the_interval_counts_clusters_not_cases():
    """Cases on one split that are all the same are one piece of evidence, however many they are."""
    of_splits = RANDOM.normal(0.1, 0.05, 24)
    once = mean_share(of_splits, 1.0, np.arange(24))
    often = mean_share(np.repeat(of_splits, 10), 1.0, np.repeat(np.arange(24), 10))
    assert (often.value, often.low, often.high) == pytest.approx((once.value, once.low, once.high))
    assert often.high - often.value == pytest.approx(2.07 * of_splits.std(ddof=1) / np.sqrt(24), rel=0.01)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    inside = 0
    for _ in range(2000):
        amount = np.repeat(RANDOM.normal(1.0, 1.0, 20), 3) + RANDOM.normal(0, 0.5, 60)
        found = mean_share(amount, 2.0, np.repeat(np.arange(20), 3))
        inside += found.low <= 0.5 <= found.high
    assert 0.93 < inside / 2000 < 0.97


def test_one_cluster_tells_nothing_about_the_spread():
    found = mean_share(np.ones(5), 1.0, np.zeros(5, dtype=int))
    assert (found.value, found.low, found.high) == (1.0, -np.inf, np.inf)


def test_a_groups_mean_has_the_spread_of_all_groups():
    group = np.repeat(np.arange(10), 4)
    amount = group + RANDOM.normal(0, 1.0, 40)
    found = mean_of_group(amount, 2.0, group, 3)
    assert found.value == pytest.approx(2.0 * amount[12:16].mean())
    within = np.sqrt(np.square(amount.reshape(10, 4) - amount.reshape(10, 4).mean(axis=1, keepdims=True)).sum() / 30)
    assert found.high - found.value == pytest.approx(2.0 * 2.042 * within / 2.0, rel=0.01)


def test_ex_post_is_the_best_of_each_case_and_never_below_honesty():
    gains = some_gains([[10.0, -50.0, 30.0, -5.0], [-20.0, 40.0, 30.0, -1.0]])
    assert ex_post_regret(gains) == pytest.approx((10 + 40 + 30 + 0) / 4 / 100)


CLIENTS = Clients(weight=[0.25] * 4, gradient_variance=1.0, sample_cost=0.05, labeling_cost=40.0, dataset_size=200)
TRAINING = Training(100, 1, 0.1)
MODEL = LossModel(constant=0.3, sampling=[0.5] * 4, labeling=[0.2] * 4, reporting=[0.01] * 4)


@pytest.mark.parametrize("truth_over_model", [0.25, 1.0, 4.0])
def test_the_elicited_batch_is_the_root_of_real_over_assumed_sampling(truth_over_model):
    """docs/mechanism.md, 2d: with v overestimated s times, the real best response is D'/√s."""
    rule = lceme(CLIENTS, MODEL, TRAINING, [40.0] * 4)
    points = list(BATCH_CURVE)
    real = truth_over_model * 0.5
    rise = np.array([real / (40 * point.batch) - real / 40 for point in points])
    saved = np.array([5.0 * 40 * (1 - point.batch) for point in points])
    cases = np.repeat((saved - rule.slope[0] * rise)[:, None], 30, axis=1) + RANDOM.normal(0, 3.0, (3, 30))
    batches = (np.full(30, 40.0), np.full(30, 200.0), np.full(30, 5.0))
    found = elicited_batch(points, some_gains(cases), *batches, np.arange(30))
    assert found.low < found.value < found.high
    assert found.value == pytest.approx(np.sqrt(truth_over_model), rel=0.06)
    model = LossModel(constant=0.3, sampling=[real] * 4, labeling=[0.2] * 4, reporting=[0.01] * 4)
    exact = best_deviation(rule, CLIENTS, model, TRAINING).strategies.batch_size[0] / 40.0
    assert found.value == pytest.approx(exact, rel=0.06)


@pytest.mark.parametrize("worth", [0.25, 1.0, 4.0])
def test_the_elicited_labels_are_where_pay_and_cost_balance(worth):
    """Pay a − ν/ℓ and cost c ℓ: the best share of labels is √(ν/c)."""
    cost, nu = 40.0, 40.0 * worth
    points = list(LABEL_CURVE)
    gain = [cost * (1 - p.labels) - nu * (1 / p.labels - 1) for p in points]
    cases = np.repeat(np.array(gain)[:, None], 30, axis=1) + RANDOM.normal(0, 1.0, (5, 30))
    known = {"labeling_cost": np.full(30, cost), "cluster": np.arange(30), "most": 3.0}
    found = elicited_labels(points, some_gains(cases), **known, without_labels=None)
    assert found.value == pytest.approx(np.sqrt(worth), rel=0.05)
    assert found.low <= found.value <= found.high
    idle = LiePoint(labels=0.0, rest=Unlabeled.DRAWN, scale=0.02, last_scale=0.02)
    for gain_of_idle, expected in ((-30.0, np.sqrt(worth)), (60.0, 0.0)):
        with_idle = np.concatenate((cases, np.full((1, 30), gain_of_idle)))
        again = elicited_labels([*points, idle], some_gains(with_idle), **known, without_labels=idle)
        assert again.value == pytest.approx(expected, rel=0.05)
    few = LiePoint(labels=0.01)  # a lie that the search found is not part of the curve
    with_few = some_gains(np.concatenate((cases, np.full((1, 30), 30.0))))
    again = elicited_labels([*points, few], with_few, **known, without_labels=None)
    assert again == found


def test_pay_below_cost_counts_the_draws_of_the_test_samples():
    rule = lceme(CLIENTS, MODEL, TRAINING, [40.0] * 4)
    loss = MODEL.truthful_loss(np.full(4, 40.0))  # where pay is just the cost
    unknown = np.full(200, np.nan)
    honest = Honest(
        np.arange(200) % 4,
        np.zeros(200, dtype=int),
        np.full(200, loss),
        unknown,
        unknown,
        unknown,
        unknown,
        unknown,
        np.zeros(200),
    )
    gains = some_gains(np.zeros((1, 200)), 240.0, 240.0)
    payer = [Payer(rule, CLIENTS, TRAINING)]
    assert share_below_cost(payer, honest, gains, np.full(200, 0.01)) == pytest.approx(0.5, abs=0.03)
    assert share_below_cost(payer, honest, gains, np.zeros(200)) == 0.0
    one_above = Gains(gains.gain, gains.pay, gains.cost + rule.slope[0] * 0.01)
    assert share_below_cost(payer, honest, one_above, np.full(200, 0.01)) == pytest.approx(0.84, abs=0.03)


def test_work_that_costs_nothing_is_done_as_much_as_possible():
    gains = some_gains(np.full((8, 4), -1.0), cost=1.0)
    points, cluster, nothing = [*LABEL_CURVE, *BATCH_CURVE], np.arange(4), np.zeros(4)
    assert elicited_labels(points, gains, nothing, cluster, most=1.5, without_labels=None).value == 1.5
    assert elicited_batch(points, gains, np.full(4, 40.0), np.full(4, 200.0), nothing, cluster).value == 5.0


def test_a_batch_of_one_sample_cannot_be_smaller():
    gains = some_gains(np.zeros((3, 4)))
    ones = np.ones(4)
    assert elicited_batch(BATCH_CURVE, gains, ones, ones, ones, np.arange(4)).value == 1.0
