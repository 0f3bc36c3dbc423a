"""Ways to combine reports: what trimmed mean and median are with weights, and what one client can do to them."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.small_jobs import DIGITS, MODELS, dishonest_federation
from truthfl import Training
from truthfl.learning.data.partition import Federated, iid_partition
from truthfl.learning.people.behaviour import Behaviour
from truthfl.learning.people.profile import Profile
from truthfl.learning.training.aggregation import (
    MEAN,
    MEDIAN,
    TRIMMED,
    ReportRule,
    combined_change,
    limited_changes,
    missing_factor,
    taken_weights,
)
from truthfl.learning.training.plain import train_plainly
from truthfl.learning.training.train import train

RULES = [
    ReportRule(TRIMMED),
    ReportRule(MEDIAN),
    ReportRule(MEDIAN, bounds=(0.5,)),
    ReportRule(MEAN, bounds=(0.5,)),
    ReportRule(MEAN, bounds=(0.5,), clips=True),
    ReportRule(MEAN, bounds=(0.5,), rescales=True),
    ReportRule(MEDIAN, rescales=True),
]


def column(*values):
    return np.array(values, dtype=np.float32)[:, None]


def test_with_equal_weights_they_are_the_usual_ones():
    rng = np.random.default_rng(0)
    for count in (1, 2, 5, 10, 11):
        changes, weight = rng.normal(size=(count, 7)).astype(np.float32), np.full(count, 1 / count)
        median = combined_change(changes, weight, MEDIAN)
        np.testing.assert_allclose(median, np.median(changes, axis=0), atol=1e-5)
        if count % 5 == 0:
            kept = np.sort(changes, axis=0)[count // 5 : count - count // 5]
            np.testing.assert_allclose(combined_change(changes, weight, TRIMMED), kept.mean(axis=0), atol=1e-6)
        mean = combined_change(changes, weight, MEAN)
        np.testing.assert_allclose(mean, changes.mean(axis=0), atol=1e-6)


def test_weights_count_and_missing_weight_is_missing():
    changes, weight = column(5.0, 1.0, 3.0), np.array([0.1, 0.6, 0.3])
    assert combined_change(changes, weight, MEDIAN)[0] == pytest.approx(1.0)
    assert combined_change(changes, weight / 2, MEDIAN)[0] == pytest.approx(0.5)
    # 0.2 is cut at either end: of the weight 0.6 at 1.0 remain 0.4, of 0.3 at 3.0 remain 0.2, of 0.1 at 5.0 nothing
    assert combined_change(changes, weight, TRIMMED)[0] == pytest.approx((0.4 * 1.0 + 0.2 * 3.0) / 0.6)
    assert combined_change(changes[:0], weight[:0], MEDIAN).tolist() == [0.0]


def test_reports_that_are_taken_can_count_for_those_that_are_missing():
    weight, taken = np.array([0.5, 0.2, 0.3]), np.array([True, False, True])
    assert taken_weights(weight, taken, ReportRule()).tolist() == [0.5, 0.3]
    rescales = ReportRule(rescales=True)
    assert taken_weights(weight, taken, rescales).tolist() == pytest.approx([0.625, 0.375])
    assert taken_weights(weight, np.ones(3, dtype=bool), rescales).tolist() == [0.5, 0.2, 0.3], "not a bit is changed"
    assert taken_weights(weight, np.zeros(3, dtype=bool), rescales).tolist() == []
    assert missing_factor(1.0, 0.0) == 1.0


def test_a_client_who_never_reports_does_not_slow_the_others_down_if_they_count_for_them():
    """As if the client had not been there: the others' weights are divided by their sum."""
    partition = iid_partition(400, (40,) * 4, seed=3)
    federated = Federated(MODELS[0], DIGITS, partition, Training(10, 1, 0.3))
    without = Federated(MODELS[0], DIGITS, partition, Training(10, 1, 0.3), weight=[1 / 3, 1 / 3, 1 / 3, 1 / 4])
    profile = Profile(["truthful"] * 3 + ["free rider"], 20)
    rescaled = train(replace(federated, rule=ReportRule(rescales=True)), profile, 7).params
    np.testing.assert_allclose(rescaled, train(without, profile, 7).params, atol=1e-6)
    assert np.abs(rescaled - train(federated, profile, 7).params).max() > 1e-3


@pytest.mark.parametrize(("rule", "share"), [(TRIMMED, 0.19), (MEDIAN, 0.49)])
def test_whose_weight_is_below_the_cut_cannot_leave_the_range_of_the_others(rule, share):
    rng = np.random.default_rng(1)
    honest = rng.normal(size=(6, 40)).astype(np.float32)
    weight = np.append(np.full(6, (1 - share) / 6), share)
    for attack in (1e6, -1e6):
        combined = combined_change(np.vstack((honest, np.full((1, 40), attack, np.float32))), weight, rule)
        assert (combined >= honest.min(axis=0) - 1e-5).all()
        assert (combined <= honest.max(axis=0) + 1e-5).all()


def test_long_changes_are_left_out_or_shortened_and_empty_ones_left_out_unless_masked():
    changes = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=np.float32)
    assert limited_changes(changes, ReportRule(bounds=(1.0,)), 0)[1].tolist() == [False, True, False]
    clipped, taken = limited_changes(changes, ReportRule(bounds=(1.0,), clips=True), 0)
    np.testing.assert_allclose(clipped, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0]], rtol=1e-6)
    assert taken.all()
    assert limited_changes(changes, ReportRule(), 0)[1].tolist() == [True, True, False]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("participation", [1.0, 0.6])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_fast_training_is_the_plain_loop_under_every_rule(model, participation, rule):
    federated, profile = dishonest_federation(model, 2, participation)
    for momentum in (0.0, 0.5):
        moving = replace(federated, training=replace(federated.training, momentum=momentum))
        ruled = replace(moving, rule=rule)
        plain, fast = train_plainly(ruled, profile, seed=7), train(ruled, profile, [7, 7], every=4).params
        assert np.abs(plain - train_plainly(moving, profile, seed=7)).max() > 1e-4
        np.testing.assert_allclose(fast, np.stack([plain] * 2), atol=2e-5)


def test_one_client_who_flips_their_change_ruins_the_mean_and_no_other_rule():
    """Without a bound, so that the rules alone are compared."""
    partition = iid_partition(400, (40,) * 10, seed=3)
    federated = Federated(MODELS[0], DIGITS, partition, Training(60, 1, 0.3))
    flipped = {"fabricate": lambda models, _, honest: models[-1] - 100 * (honest() - models[-1])}
    attacker = Behaviour("attacker", "Flips their change, times 100.", True, True, reports_honestly=False, **flipped)
    test = DIGITS.take(np.arange(1000, 1400))
    profiles = [Profile([first] + ["truthful"] * 9, 20) for first in ("truthful", attacker)]
    left = {}
    for rule in (MEAN, TRIMMED, MEDIAN):
        trained = train(replace(federated, rule=ReportRule(rule)), profiles, [7, 7], evaluate_on={"test": test})
        honest, attacked = trained.evaluations["test"].accuracy[:, -1]
        left[rule] = attacked / honest
    assert left[MEAN] < 0.6
    assert min(left[TRIMMED], left[MEDIAN]) > 0.9
