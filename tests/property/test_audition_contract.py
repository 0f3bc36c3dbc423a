"""The audition contract on known curves: honest labels and batches are the best joint choice; bounds of pay."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.auditions import NUMBERS, curve, inputs, measurement
from truthfl import Clients, InfeasibleError, InputError, LossModel, Observation, PlanInputs, Prices, Training
from truthfl.contracts.audition.labels import best_labels, taking_part
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.audition.plan import (
    TOLERATED_GAIN,
    best_batches,
    best_choice,
    expected_clipped,
    expected_payoff,
    label_task,
    plan_audition,
)
from truthfl.contracts.solo import GATE_DEVIATIONS, MOST_SHIFT, SoloResult, level_variance, peer_shifts

pytestmark = pytest.mark.properties


jobs = st.builds(
    lambda count, label_cost, kappa, spread, power, v, sigma, price: inputs(
        count,
        label_cost,
        price,
        kappa,
        measurement(
            count,
            curve(scale=20.0 * 20**power, relative_spread=spread, power=power),
            sampling=np.full(count, v),
            loss_error=sigma,
        ),
    ),
    count=st.integers(2, 12),
    label_cost=st.floats(0.2, 3.0),
    kappa=st.floats(5_000, 200_000),
    spread=st.floats(0.02, 0.24),
    power=st.floats(0.6, 1.3),
    v=st.floats(0.005, 0.2),
    sigma=st.floats(0.0, 0.03),
    price=st.floats(1e-4, 3e-3),
)


@given(jobs)
@settings(max_examples=40, deadline=None)
def test_honest_labels_and_batches_are_the_best_joint_choice_with_floor_and_cap(job):
    """By a search over all labels and batches, on the curves from which the contract was made, in expectation."""
    contract = plan_audition(job).contract
    choice = best_choice(job, contract)
    cost = job.clients.labeling_cost / 220 * contract.labels
    assert (choice.gain <= 0.03 * cost).all()  # slopes are differences over a window, and caps cut off 0.1%
    assert (choice.payoff > 0).all()


@given(jobs)
@settings(max_examples=25, deadline=None)
def test_without_floor_and_cap_the_payoff_is_concave_with_its_top_at_the_labels_asked_for(job):
    contract = plan_audition(job).contract
    solo, u = job.measured.solo, job.clients.labeling_cost / 220
    n = np.arange(30.0, 220.0)[:, None]
    total = contract.total_labels
    payoff = (
        contract.label_slope * (contract.solo_level - solo.level(n))
        - contract.joint_slope * job.measured.joint_curve * (1.0 / (total - contract.labels + n) - 1.0 / total)
        - u * n
    )
    best = n[payoff.argmax(axis=0), 0]
    inside = (contract.labels > 40) & (contract.labels < 200)
    assert (np.abs(best / contract.labels - 1.0)[inside] < 0.12).all()
    batch = np.arange(1.0, 260.0)[:, None]
    price = 100 * job.clients.sample_cost
    by_batch = -contract.joint_slope * job.measured.sampling / batch - price * batch
    assert (np.abs(batch[by_batch.argmax(axis=0), 0] - contract.batch_size) <= 1.0).all()


def test_honest_pay_covers_its_cost_as_often_as_stated_and_the_cap_binds_as_seldom():
    job = inputs(10, confidence=0.95)
    contract = plan_audition(job).contract
    rng = np.random.default_rng(1)
    solo = contract.solo_level + contract.solo_spread * rng.standard_normal((20_000, 10))
    shift = np.stack([peer_shifts((row - contract.solo_level) / contract.solo_spread) for row in solo[:4000]])
    loss = contract.joint_constant + contract.joint_curve / contract.total_labels
    loss = loss + 0.015 * rng.standard_normal((4000, 1))
    seen = Observation(loss, solo=SoloResult(solo[:4000], shift))
    cost = job.clients.labeling_cost / 220 * contract.labels + 2.0 + 0.06 * contract.batch_size
    below = (contract.pay(seen) < cost).mean()
    assert 0.035 < below < 0.055
    assert (contract.label_pay(seen) >= contract.label_cap).mean() < 0.002
    assert (~contract.passes(seen)).mean() < 0.0005
    assert contract.pay(seen).min() >= 0.0
    low, high = contract.pay_range(0.0, 3.0)
    assert (contract.pay(seen) <= high).all()
    assert (low == 0).all()


def test_label_pay_by_hand():
    """u n' + cost of the audition + margin at the expected loss; slope u n'/b; corrected for the joint part."""
    job = inputs(4, measured=measurement(4, sampling=np.full(4, 0.03)))
    contract = plan_audition(job).contract
    n, b = contract.labels, job.measured.solo.slope(contract.labels)
    slope = 0.06 * contract.batch_size**2 / 0.03
    np.testing.assert_allclose(contract.joint_slope, slope)
    np.testing.assert_allclose(contract.label_slope, (1.0 - slope * 60.0 / n.sum() ** 2) * n / b)
    worse = Observation(0.4, solo=SoloResult(contract.solo_level + 0.01))
    np.testing.assert_allclose(contract.label_pay(worse), contract.label_base - 0.01 * contract.label_slope)
    np.testing.assert_allclose(contract.label_pay(Observation(0.4, solo=SoloResult(2.3))), 0.0)
    np.testing.assert_allclose(contract.label_pay(Observation(0.4, solo=SoloResult(0.0))), contract.label_cap)
    shifted = Observation(0.4, solo=SoloResult(contract.solo_level + 0.5 * contract.solo_spread, 0.5))
    np.testing.assert_allclose(contract.label_pay(shifted), contract.label_base)


def test_the_joint_part_follows_those_who_took_part_and_not_who_failed():
    contract = plan_audition(inputs(4)).contract
    loss = contract.joint_constant[0] + contract.joint_curve[0] / contract.total_labels[0]
    half = contract.total_labels[0] / 2
    expected = contract.joint_constant[0] + contract.joint_curve[0] / half
    seen = Observation(expected, present_labels=half, delivered=[100, 50, 0, 100], asked=[100, 100, 100, 0])
    np.testing.assert_allclose(contract.computing_pay(seen), contract.joint_base * [1.0, 0.5, 0.0, 0.0])
    none = Observation(loss, solo=SoloResult([np.nan, contract.solo_level[0], 2.3, contract.solo_level[0]]))
    np.testing.assert_array_equal(contract.passes(none), [False, True, False, True])
    np.testing.assert_array_equal(contract.pay(none) > 0, [False, True, False, True])
    just_above = Observation(loss, solo=SoloResult(contract.solo_level + 1.001 * contract.gate))
    amount = contract.label_base - 1.001 * contract.gate * contract.label_slope - 2.0  # without the audition's cost
    np.testing.assert_allclose(contract.pay(just_above), np.maximum(amount, 0.0))


@given(jobs, st.floats(0.3, 0.95), st.sampled_from(["expected", "caps"]))
@settings(max_examples=25, deadline=None)
def test_a_budget_bounds_what_it_says_it_bounds(job, share, bounds):
    free = replace(job, measured=replace(job.measured, budget_bounds=bounds))

    def bounded(contract):
        parts = ("label_cap", "joint_cap") if bounds == "caps" else ("label_base", "joint_base")
        return sum(float(getattr(contract, part).sum()) for part in parts)

    without = plan_audition(free).contract
    tight = replace(free, budget=share * bounded(without))
    least = bounded(plan_audition(replace(free, loss_value=1e-9)).contract)
    if tight.budget < least:
        with pytest.raises(InfeasibleError, match="raise the budget to"):
            plan_audition(tight)
        return
    contract = plan_audition(tight).contract
    assert bounded(contract) <= tight.budget * (1 + 1e-9)
    assert (contract.labels <= without.labels).all()


def test_a_flat_curve_gives_a_sentence_and_never_a_slope_made_of_noise():
    rng = np.random.default_rng(0)
    flat = SoloCurve(NUMBERS, 0.2 + 0.05 * rng.standard_normal((40, len(NUMBERS))))
    with pytest.raises(InfeasibleError, match="further labels are worth nothing"):
        plan_audition(inputs(4, measured=measurement(4, flat)))
    falling_then_flat = np.where(NUMBERS < 80, 0.3 + 60 / NUMBERS, 0.3 + 60 / 80)
    noise = 0.05 * rng.standard_normal((40, len(NUMBERS))) + 0.1 * rng.standard_normal((40, 1))
    contract = plan_audition(inputs(4, measured=measurement(4, SoloCurve(NUMBERS, falling_then_flat + noise)))).contract
    assert (contract.labels < 100).all()  # though labels would be worth more to the server


def test_no_plan_promises_more_than_a_stated_multiple_of_cost():
    wild = measurement(4, curve(relative_spread=0.6))
    with pytest.raises(InfeasibleError, match=r"its cap had to be .* times the cost of labels; most_pay is 3"):
        plan_audition(inputs(4, measured=wild))
    contract = plan_audition(inputs(4, measured=replace(wild, most_pay=6.0))).contract
    assert ((contract.label_cap + contract.joint_cap) / (contract.labels + 2.0) < 6.2).all()


def test_labels_are_bought_where_they_are_cheap_and_as_the_server_values_them():
    job = inputs(10, label_cost=np.array([0.5] * 5 + [2.0] * 5))
    labels = best_labels(label_task(job))
    assert (labels[:5] > labels[5:]).all()
    more = best_labels(label_task(replace(job, loss_value=4 * job.loss_value)))
    assert (more >= labels).all()
    assert more[9] > labels[9]
    equal = best_labels(label_task(inputs(10)))
    task = label_task(inputs(10))
    n = task.numbers[task.usable]
    totals = 40_000 * 60 / (10 * n) + 10 * n * (1 + task.margin_deviations * task.risk[task.usable])
    assert equal[0] == n[totals.argmin()]  # the best total, by trying all


def test_clients_are_left_out_whose_labels_are_clearly_worth_less_than_their_pay():
    job = inputs(40, kappa=8000.0, label_cost=np.linspace(0.5, 3.0, 40))
    stay = taking_part(label_task(job))
    assert 1 <= stay.sum() < 40
    assert stay[:5].all()
    assert not stay[-1]
    assert taking_part(label_task(inputs(10))).all()
    few = replace(job, clients=Clients(weight=np.full(40, 1 / 40), gradient_variance=1.0, sample_cost=0.0006,
                  labeling_cost=20.0, dataset_size=[10] * 39 + [220]))  # fmt: skip
    with pytest.raises(InfeasibleError, match="has 10 samples; the fewest labels") as caught:
        best_labels(label_task(few))
    assert caught.value.clients == tuple(range(39))


def test_the_margin_counts_as_a_cost_of_batches():
    """D' solves κ v/D² = P (1 + 2 z σ D/v); found here by trying all whole batches."""
    v, price = np.array([0.03, 0.1]), np.array([0.06, 0.2])
    batch, _ = best_batches(
        loss_value=3600.0, sampling=v, price=price, margin_rate=0.03, absence=np.full(2, np.inf),
        label_pay=np.full(2, 200.0), labels=np.full(2, 300.0),
    )  # fmt: skip
    tried = np.arange(1.0, 300.0)[:, None]
    cost = 3600.0 * v / tried + price * tried + 0.03 * price * tried**2 / v
    np.testing.assert_array_equal(batch, tried[cost.argmin(axis=0), 0])


@pytest.mark.parametrize("absence", [-0.01, 0.0, 1e-5, 1e-3, 0.01])
def test_not_computing_gains_no_more_than_is_tolerated(absence):
    v, price, label_pay = np.full(3, 0.03), np.array([0.06, 0.5, 5.0]), np.full(3, 150.0)
    batch, unproven = best_batches(
        loss_value=40_000.0, sampling=v, price=price, margin_rate=0.03, absence=np.full(3, absence),
        label_pay=label_pay, labels=np.full(3, 200.0),
    )  # fmt: skip
    gain = price * batch * np.maximum(1.0 - batch * max(absence, 0.0) / v, 0.0)
    np.testing.assert_array_equal(unproven, gain > TOLERATED_GAIN * label_pay * (1 + 1e-9))
    assert (unproven[:2] == 0).all()  # who is asked for one sample at 5 cannot be asked for less
    flat, _ = best_batches(
        loss_value=40_000.0, sampling=np.zeros(3), price=price, margin_rate=0.03, absence=np.full(3, absence),
        label_pay=label_pay, labels=np.full(3, 200.0),
    )  # fmt: skip
    np.testing.assert_array_equal(flat, [16.0, 3.0, 1.0])


EXCESS = st.floats(-60, 60) | st.sampled_from([float("nan"), float("inf"), -float("inf")])


@given(st.lists(EXCESS, min_size=1, max_size=14))
@settings(max_examples=200, deadline=None)
def test_peer_shifts_are_those_of_a_loop_over_clients(excess):
    """The median of those of the others and the pilot who are near a first median; of two, one alone would decide."""
    slow = []
    for i in range(len(excess)):
        others = sorted([x for j, x in enumerate(excess) if j != i and not np.isnan(x)] + [0.0])
        first = min(others[(len(others) - 1) // 2], others[len(others) // 2], key=abs)
        near = [x for x in others if first - GATE_DEVIATIONS <= x <= first + GATE_DEVIATIONS]
        slow.append(np.clip(np.median(near), -MOST_SHIFT, MOST_SHIFT) if len(others) > 2 else 0.0)
    np.testing.assert_allclose(peer_shifts(excess), slow, atol=1e-12)


@given(st.lists(st.floats(-2.5, 2.5), min_size=1, max_size=12), EXCESS, EXCESS)
@settings(max_examples=300, deadline=None)
def test_one_model_moves_no_level_beyond_those_next_to_the_middle(others, honest, lie):
    """Wherever one excess lies: no shift leaves the gap in the middle of the rest, and the liar's does not move."""
    before, after = (peer_shifts([*others, own]) for own in (honest, lie))
    assert after[-1] == before[-1]
    for i in range(len(others)):
        rest = sorted([*others[:i], *others[i + 1 :], 0.0])  # without i and without the liar
        if len(rest) < 2:
            assert after[i] == 0.0
            continue
        low, high = rest[(len(rest) - 2) // 2], rest[(len(rest) + 1) // 2]
        assert low <= after[i] <= high


def test_a_minority_of_bad_or_borrowed_models_moves_levels_no_more_than_its_absence_would():
    drawn = np.random.default_rng(3).standard_normal((500, 10)).clip(-2.5, 2.5)  # honest ones are near each other
    for people, dishonest in ((3, 1), (4, 1), (10, 4)):
        honest = drawn[:, dishonest:people]
        alone = np.array([peer_shifts([math.nan] * dishonest + list(row))[dishonest:] for row in honest])
        for excess in (27.0, -27.0):
            told = np.array([peer_shifts([excess] * dishonest + list(row))[dishonest:] for row in honest])
            assert abs(told.mean()) < 0.05  # so that honest people are paid what the plan expected
            np.testing.assert_allclose(told, alone if people > 3 else honest[:, ::-1] / 2.0)


def test_what_all_share_is_learned():
    assert peer_shifts(np.linspace(-1.5, 1.5, 10) + 3.0).mean() == pytest.approx(2.85, abs=0.1)


def test_the_variance_of_the_level_is_that_of_a_median():
    drawn = np.random.default_rng(4)
    for clients in (1, 3, 5, 9, 25):
        simulated = np.median(drawn.standard_normal((100_000, clients)), axis=1).var()
        assert level_variance(clients) == pytest.approx(simulated, rel=0.04)
    for clients in (2, 4, 10):
        assert level_variance(clients) >= np.median(drawn.standard_normal((100_000, clients)), axis=1).var()


def test_the_solo_curve_interpolates_between_measured_numbers():
    solo = curve(power=1.0)
    np.testing.assert_allclose(solo.level(NUMBERS), 0.3 + 60 / NUMBERS)
    n = np.array([40.0, 77.0, 150.0])
    np.testing.assert_allclose(solo.slope(n), 60 / n, rtol=0.05)
    assert (solo.slope_error(n) < 0.05 * solo.slope(n)).all()
    partly = solo.loss.copy()
    partly[::2, :5] = np.nan  # every second client was not measured with few labels
    np.testing.assert_allclose(SoloCurve(NUMBERS, partly).level(n), solo.level(n), rtol=0.05)
    with pytest.raises(InputError, match="at least two numbers of labels"):
        SoloCurve(np.array([5.0]), np.zeros((4, 1)))
    with pytest.raises(InputError, match="3 or more clients"):
        SoloCurve(NUMBERS, solo.loss[:2])


def test_expected_clipped_pay_is_that_of_many_draws():
    drawn = np.random.default_rng(0).standard_normal(400_000)
    for mean, deviation, high in ((1.0, 0.5, 1.5), (-0.2, 1.0, 3.0), (2.0, 0.1, 1.0)):
        simulated = np.clip(mean + deviation * drawn, 0.0, high).mean()
        assert expected_clipped(mean, deviation, high) == pytest.approx(simulated, abs=5e-3)
    assert expected_clipped(5.0, 0.0, 3.0) == 3.0


def test_expected_payoff_of_honest_work_is_the_margin():
    job = inputs(10)
    contract = plan_audition(job).contract
    cost = contract.labels + 2.0 + 0.06 * contract.batch_size
    margin = contract.label_base + contract.joint_base - cost
    np.testing.assert_allclose(expected_payoff(job, contract, contract.labels, contract.batch_size), margin, rtol=0.02)


MODEL = LossModel(constant=0.1, sampling=[1.0] * 3, labeling=[1.0] * 3, reporting=[1.0] * 3)


def test_a_job_without_data_cannot_be_planned_with_it():
    with pytest.raises(InputError, match="is planned on pilot data"):
        Audition.plan(PlanInputs(inputs(3).clients, MODEL, Training(100), Prices()))


def test_a_majority_that_does_not_label_does_not_pass():
    contract = plan_audition(inputs(10)).contract
    solo = contract.solo_level.copy()
    solo[:7] = 2.3
    shift = peer_shifts((solo - contract.solo_level) / contract.solo_spread)
    passed = contract.passes(Observation(0.4, solo=SoloResult(solo, shift)))
    np.testing.assert_array_equal(passed, np.arange(10) >= 7)


@pytest.mark.parametrize(
    ("term", "value", "words"),
    [
        ("label_cap", -1.0, "label_cap is -1.0"),
        ("joint_cap", 0.0, "joint_cap is below its joint_base"),
        ("gate", -0.1, "gate is -0.1"),
        ("solo_spread", 0.0, "solo_spread is not above 0"),
        ("label_slope", float("inf"), "label_slope is not finite"),
        ("total_labels", 1.0, "total_labels are fewer"),
    ],
)
def test_absurd_terms_are_refused(term, value, words):
    contract = plan_audition(inputs(3)).contract
    contract.require_sound_terms()
    with pytest.raises(InputError, match=words):
        replace(contract, **{term: np.full(3, value)}).require_sound_terms()
