"""The audition contract on known curves: the labels asked for are the best choice, bounds of pay, shifts of levels."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.auditions import NUMBERS, SCORES, curve, inputs, joint_measurement, measurement
from truthfl import Clients, InfeasibleError, InputError, LossModel, Observation, PlanInputs, Prices, Training
from truthfl.contracts.audition.labels import TOLERATED_GAIN, best_labels, taking_part
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.audition.plan import (
    best_choice,
    expected_clipped,
    expected_payoff,
    label_task,
    plan_audition,
)
from truthfl.contracts.solo import GATE_DEVIATIONS, MOST_SHIFT, SoloResult, level_variance, peer_shifts

pytestmark = pytest.mark.properties


jobs = st.builds(
    lambda count, label_cost, kappa, spread, power, price: inputs(
        count,
        label_cost,
        price,
        kappa,
        measurement(count, curve(scale=20.0 * 20**power, relative_spread=spread, power=power)),
    ),
    count=st.integers(2, 12),
    label_cost=st.floats(0.2, 3.0),
    kappa=st.floats(5_000, 200_000),
    spread=st.floats(0.02, 0.24),
    power=st.floats(0.6, 1.3),
    price=st.floats(1e-4, 3e-3),
)


@given(jobs)
@settings(max_examples=40, deadline=None)
def test_no_other_number_of_labels_gains_more_than_is_tolerated(job):
    """By a search over all numbers on the curve from which the contract was made, in expectation, floor and cap too."""
    contract = plan_audition(job)
    choice = best_choice(job, contract)
    cost = job.clients.labeling_cost / 220 * contract.labels
    assert (choice.gain <= TOLERATED_GAIN * cost).all()
    assert (choice.payoff >= 0).all()


@given(jobs)
@settings(max_examples=25, deadline=None)
def test_without_floor_and_cap_the_payoff_is_highest_at_the_labels_asked_for(job):
    contract = plan_audition(job)
    solo, u = job.measured.solo, job.clients.labeling_cost / 220
    n = np.arange(20.0, 300.0)[:, None]
    payoff = contract.label_slope * (contract.solo_level - solo.level(n)) - u * n
    best = n[payoff.argmax(axis=0), 0]
    inside = contract.labels > 30
    assert (np.abs(best / contract.labels - 1.0)[inside] < 0.12).all()


@given(st.integers(0, 2**32 - 1), st.floats(0.3, 3.0), st.floats(5_000, 200_000))
@settings(max_examples=40, deadline=None)
def test_on_an_uneven_curve_no_other_number_gains_more_than_is_tolerated_or_there_is_no_plan(seed, shape, kappa):
    falls = np.random.default_rng(seed).gamma(shape, size=len(NUMBERS))
    level = 0.3 + 1.5 * (1.0 - np.cumsum(falls) / falls.sum())
    job = inputs(4, kappa=kappa, measured=measurement(4, SoloCurve(NUMBERS, level + 0.005 * SCORES[:, None])))
    if not label_task(job).usable.any():
        with pytest.raises(InfeasibleError, match="falls so unevenly"):
            plan_audition(job)
        return
    contract = plan_audition(job)
    assert (best_choice(job, contract).gain <= TOLERATED_GAIN * contract.labels).all()


LOSSES = st.floats(0.0, 5.0) | st.just(math.nan)


@given(jobs, st.data())
@settings(max_examples=60, deadline=None)
def test_pay_is_from_nothing_to_the_cap_and_the_pay_for_computing(job, data):
    contract = plan_audition(job)
    count = len(contract.labels)
    solo = data.draw(st.lists(LOSSES, min_size=count, max_size=count))
    asked = data.draw(st.integers(0, 100))
    seen = Observation(
        data.draw(st.floats(0.0, 10.0)),
        delivered=[data.draw(st.integers(0, asked)) for _ in range(count)],
        asked=np.full(count, asked),
        solo=SoloResult(solo, data.draw(st.floats(-MOST_SHIFT, MOST_SHIFT))),
    )
    pay, parts = contract.pay(seen), contract.parts(seen)
    assert (pay >= 0).all()
    assert (pay <= contract.label_cap + contract.computing_base).all()
    np.testing.assert_array_equal(pay, parts["label_pay"] + parts["computing_pay"])
    np.testing.assert_array_equal(parts["label_pay"][np.isnan(solo)], 0.0)
    assert (parts["computing_pay"][~contract.passes(seen)] == 0).all()
    low, high = contract.pay_range(0.0, 10.0)
    assert ((low <= pay) & (pay <= high)).all()


@given(jobs, st.integers(1, 100), st.floats(0.0, 1.0), st.floats(0.0, 9.0))
@settings(max_examples=40, deadline=None)
def test_computing_is_paid_in_proportion_to_reports_and_whatever_the_joint_loss(job, asked, share, loss):
    contract = plan_audition(job)
    delivered = math.floor(share * asked)
    seen = Observation(loss, delivered=delivered, asked=asked, solo=SoloResult(contract.solo_level))
    np.testing.assert_allclose(contract.computing_pay(seen), contract.computing_base * delivered / asked, rtol=1e-12)
    everything = contract.pay(Observation(loss, delivered=asked, asked=asked, solo=SoloResult(contract.solo_level)))
    np.testing.assert_allclose(everything - contract.pay(seen), contract.computing_base * (1 - delivered / asked))


def test_computing_is_paid_what_it_costs():
    job = inputs(4, sample_cost=0.0006, measured=measurement(4, batch=16.0))
    np.testing.assert_allclose(plan_audition(job).computing_base, 100 * 0.0006 * 16)
    large = plan_audition(inputs(4, measured=measurement(4, batch=500.0)))
    np.testing.assert_array_equal(large.batch_size, large.labels)


def test_honest_pay_covers_its_cost_as_often_as_stated_and_the_cap_binds_as_seldom():
    job = inputs(10, confidence=0.95)
    contract = plan_audition(job)
    rng = np.random.default_rng(1)
    solo = contract.solo_level + contract.solo_spread * rng.standard_normal((20_000, 10))
    shift = np.stack([peer_shifts((row - contract.solo_level) / contract.solo_spread) for row in solo[:4000]])
    seen = Observation(0.4, solo=SoloResult(solo[:4000], shift))
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
    """u n' + cost of the audition + margin at the expected loss; slope u n'/b."""
    job = inputs(4)
    contract = plan_audition(job)
    n, solo = contract.labels, job.measured.solo
    np.testing.assert_allclose(contract.label_slope, n / solo.slope(n))
    error = solo.spread(n) * math.sqrt(1.0 + level_variance(4))
    margin = label_task(job).margin_deviations * contract.label_slope * error
    np.testing.assert_allclose(contract.label_base, n + 2.0 + margin)
    np.testing.assert_allclose(contract.label_cap, contract.label_base + 3.09 * contract.label_slope * error)
    worse = Observation(0.4, solo=SoloResult(contract.solo_level + 0.01))
    np.testing.assert_allclose(contract.label_pay(worse), contract.label_base - 0.01 * contract.label_slope)
    np.testing.assert_allclose(contract.label_pay(Observation(0.4, solo=SoloResult(2.3))), 0.0)
    np.testing.assert_allclose(contract.label_pay(Observation(0.4, solo=SoloResult(0.0))), contract.label_cap)
    shifted = Observation(0.4, solo=SoloResult(contract.solo_level + 0.5 * contract.solo_spread, 0.5))
    np.testing.assert_allclose(contract.label_pay(shifted), contract.label_base)


def test_who_does_not_pass_is_paid_for_labels_alone():
    contract = plan_audition(inputs(4))
    none = Observation(0.5, solo=SoloResult([np.nan, contract.solo_level[0], 2.3, contract.solo_level[0]]))
    np.testing.assert_array_equal(contract.passes(none), [False, True, False, True])
    np.testing.assert_array_equal(contract.pay(none) > 0, [False, True, False, True])
    just_above = Observation(0.5, solo=SoloResult(contract.solo_level + 1.001 * contract.gate))
    amount = contract.label_base - 1.001 * contract.gate * contract.label_slope - 2.0  # without the audition's cost
    np.testing.assert_allclose(contract.pay(just_above), np.maximum(amount, 0.0))


@given(jobs, st.floats(0.3, 0.95), st.sampled_from(["expected", "caps"]), st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_budget_bounds_what_it_says_it_bounds(job, share, bounds, by_joint_loss):
    joint = joint_measurement(len(job.clients)) if by_joint_loss else None
    free = replace(job, measured=replace(job.measured, budget_bounds=bounds, joint=joint))

    def bounded(contract):
        if bounds == "caps":
            return float(sum(part.sum() for part in contract.most_parts().values()))
        return float((contract.label_base + contract.computing_base).sum())

    without = plan_audition(free)
    tight = replace(free, budget=share * bounded(without))
    least = bounded(plan_audition(replace(free, loss_value=1e-9)))
    if tight.budget < least:
        with pytest.raises(InfeasibleError, match="raise the budget to"):
            plan_audition(tight)
        return
    contract = plan_audition(tight)
    assert bounded(contract) <= tight.budget * (1 + 1e-9)
    assert (contract.labels <= without.labels).all()


def test_a_flat_curve_gives_a_sentence_and_never_a_slope_made_of_noise():
    rng = np.random.default_rng(0)
    flat = SoloCurve(NUMBERS, 0.2 + 0.05 * rng.standard_normal((40, len(NUMBERS))))
    with pytest.raises(InfeasibleError, match="further labels are worth nothing"):
        plan_audition(inputs(4, measured=measurement(4, flat)))
    falling_then_flat = np.where(NUMBERS < 80, 0.3 + 60 / NUMBERS, 0.3 + 60 / 80)
    noise = 0.05 * rng.standard_normal((40, len(NUMBERS))) + 0.1 * rng.standard_normal((40, 1))
    contract = plan_audition(inputs(4, measured=measurement(4, SoloCurve(NUMBERS, falling_then_flat + noise))))
    assert (contract.labels < 100).all()  # though labels would be worth more to the server


def test_no_plan_promises_more_than_a_stated_multiple_of_cost():
    wild = measurement(4, curve(relative_spread=0.6))
    with pytest.raises(InfeasibleError, match=r"its cap had to be .* times the cost of labels; most_pay is 3"):
        plan_audition(inputs(4, measured=wild))
    contract = plan_audition(inputs(4, measured=replace(wild, most_pay=6.0)))
    assert (contract.label_cap / (contract.labels + 2.0) < 6.2).all()


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


def test_expected_clipped_pay_is_that_of_many_draws():
    drawn = np.random.default_rng(0).standard_normal(400_000)
    for mean, deviation, high in ((1.0, 0.5, 1.5), (-0.2, 1.0, 3.0), (2.0, 0.1, 1.0)):
        simulated = np.clip(mean + deviation * drawn, 0.0, high).mean()
        assert expected_clipped(mean, deviation, high) == pytest.approx(simulated, abs=5e-3)
    assert expected_clipped(5.0, 0.0, 3.0) == 3.0


def test_expected_payoff_of_honest_work_is_the_margin():
    job = inputs(10)
    contract = plan_audition(job)
    margin = contract.label_base - contract.labels - 2.0
    np.testing.assert_allclose(expected_payoff(job, contract, contract.labels), margin, rtol=0.02)


MODEL = LossModel(constant=0.1, sampling=[1.0] * 3, labeling=[1.0] * 3, reporting=[1.0] * 3)


def test_a_job_without_data_cannot_be_planned_with_it():
    with pytest.raises(InputError, match="is planned on pilot data"):
        Audition.plan(PlanInputs(inputs(3).clients, MODEL, Training(100), Prices()))


def test_a_majority_that_does_not_label_does_not_pass():
    contract = plan_audition(inputs(10))
    solo = contract.solo_level.copy()
    solo[:7] = 2.3
    shift = peer_shifts((solo - contract.solo_level) / contract.solo_spread)
    passed = contract.passes(Observation(0.4, solo=SoloResult(solo, shift)))
    np.testing.assert_array_equal(passed, np.arange(10) >= 7)


@pytest.mark.parametrize(
    ("term", "value", "words"),
    [
        ("label_cap", -1.0, "label_cap is -1.0"),
        ("label_cap", 0.0, "label_cap is below its label_base"),
        ("computing_base", -1.0, "computing_base is -1.0"),
        ("gate", -0.1, "gate is -0.1"),
        ("solo_spread", 0.0, "solo_spread is not above 0"),
        ("label_slope", float("inf"), "label_slope is not finite"),
    ],
)
def test_absurd_terms_are_refused(term, value, words):
    contract = plan_audition(inputs(3))
    contract.require_sound_terms()
    with pytest.raises(InputError, match=words):
        replace(contract, **{term: np.full(3, value)}).require_sound_terms()
