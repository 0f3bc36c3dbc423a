"""The audition whose computing is paid by the joint loss: batches, the joint part of pay, its margin and its cap."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.auditions import curve, inputs, joint_measurement, measurement
from truthfl import InputError, Observation
from truthfl.contracts.audition.joint import FLOOR_DEVIATIONS, TOLERATED_GAIN, JointAudition, best_batches
from truthfl.contracts.audition.plan import plan_audition
from truthfl.contracts.solo import SoloResult, peer_shifts

pytestmark = pytest.mark.properties


def joint_inputs(count=10, label_cost=1.0, price=0.0006, kappa=40_000.0, solo=None, **joint):
    measured = measurement(count, solo, joint=joint_measurement(count, **joint))
    return inputs(count, label_cost, price, kappa, measured)


jobs = st.builds(
    lambda count, label_cost, kappa, spread, power, v, sigma, price: joint_inputs(
        count,
        label_cost,
        price,
        kappa,
        curve(scale=20.0 * 20**power, relative_spread=spread, power=power),
        sampling=np.full(count, v),
        loss_error=sigma,
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
def test_labels_and_batches_asked_for_are_the_best_for_a_client(job):
    """By a search over both, without floor and cap; a label lowers the joint loss too, which the slope allows for."""
    contract = plan_audition(job)
    assert isinstance(contract, JointAudition)
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
    by_batch = -contract.joint_slope * job.measured.joint.sampling / batch - price * batch
    assert (np.abs(batch[by_batch.argmax(axis=0), 0] - contract.batch_size) <= 1.0).all()


def test_the_joint_terms_by_hand():
    job = joint_inputs(4)
    contract, without = plan_audition(job), plan_audition(replace(job, measured=measurement(4)))
    n, b = contract.labels, job.measured.solo.slope(contract.labels)
    np.testing.assert_allclose(contract.joint_slope, 0.06 * contract.batch_size**2 / 0.03)
    np.testing.assert_allclose(contract.label_slope, (1.0 - contract.joint_slope * 60.0 / n.sum() ** 2) * n / b)
    np.testing.assert_array_equal(n, without.labels)
    np.testing.assert_array_equal(contract.audition_pay, without.audition_pay)
    np.testing.assert_array_equal(contract.total_labels, n.sum())
    noise = 4 * 0.03 / contract.batch_size[0]
    everybody = contract.expected_joint_loss(Observation(0.0))
    np.testing.assert_allclose(everybody, 0.3 + noise + 60.0 / n.sum())


@given(jobs)
@settings(max_examples=40, deadline=None)
def test_expected_pay_covers_cost_and_the_floor_is_far_below_where_the_margin_suffices(job):
    contract = plan_audition(job)
    labels = job.clients.labeling_cost / 220 * contract.labels + 2.0
    computing = 100 * job.clients.sample_cost * contract.batch_size
    assert (contract.label_base >= labels - 1e-9).all()
    assert (contract.computing_base >= computing - 1e-9).all()
    margin = contract.label_base + contract.computing_base - labels - computing
    error = contract.joint_slope * job.measured.joint.loss_error
    there = contract.computing_base >= FLOOR_DEVIATIONS * error - 1e-9
    np.testing.assert_allclose((contract.computing_base - computing)[~there], margin[~there], rtol=1e-6)
    contract.require_sound_terms()


@given(jobs, st.floats(0.0, 5.0), st.floats(-0.5, 2.0), st.integers(0, 7))
@settings(max_examples=40, deadline=None)
def test_pay_is_from_nothing_to_both_caps_and_in_proportion_to_reports(job, loss, rise, delivered):
    contract = plan_audition(job)
    solo = SoloResult(contract.solo_level + rise)
    pay, all_reports = (contract.pay(Observation(loss, delivered=k, asked=7, solo=solo)) for k in (delivered, 7))
    assert (pay >= 0).all()
    assert (pay <= contract.label_cap + contract.joint_cap).all()
    label_pay = contract.label_pay(Observation(loss, solo=solo))
    np.testing.assert_allclose(pay - label_pay, (all_reports - label_pay) * delivered / 7, atol=1e-9)


def test_honest_pay_covers_its_cost_as_often_as_stated():
    job = joint_inputs(10)
    contract = plan_audition(job)
    rng = np.random.default_rng(1)
    solo = contract.solo_level + contract.solo_spread * rng.standard_normal((4000, 10))
    shift = np.stack([peer_shifts((row - contract.solo_level) / contract.solo_spread) for row in solo])
    loss = contract.expected_joint_loss(Observation(0.0)) + 0.015 * rng.standard_normal((4000, 1))
    cost = job.clients.labeling_cost / 220 * contract.labels + 2.0 + 0.06 * contract.batch_size
    pay = contract.pay(Observation(loss, solo=SoloResult(solo, shift)))
    assert 0.035 < (pay < cost).mean() < 0.055


def test_the_joint_part_follows_those_who_took_part():
    contract = plan_audition(joint_inputs(4))
    half = contract.total_labels[0] / 2
    expected = contract.joint_constant[0] + contract.joint_curve[0] / half
    seen = Observation(expected, present_labels=half, delivered=[100, 50, 0, 100], asked=[100, 100, 100, 0])
    np.testing.assert_allclose(contract.computing_pay(seen), contract.computing_base * [1.0, 0.5, 0.0, 0.0])
    early = Observation(expected + 0.2, present_labels=half, loss_rise=0.2)
    np.testing.assert_allclose(contract.computing_pay(early), contract.computing_base)
    stopped = Observation(expected, present_labels=half, solo=SoloResult([np.nan, 2.3, *contract.solo_level[:2]]))
    np.testing.assert_array_equal(contract.computing_pay(stopped) > 0, [False, False, True, True])


def test_the_margin_counts_as_a_cost_of_batches():
    """D' solves κ v/D² = P (1 + 2 z σ D/v); found here by trying all whole batches."""
    v, price = np.array([0.03, 0.1]), np.array([0.06, 0.2])
    batch, _ = best_batches(
        stake=3600.0, sampling=v, price=price, margin_rate=0.03, absence=np.full(2, np.inf),
        label_pay=np.full(2, 200.0), labels=np.full(2, 300.0),
    )  # fmt: skip
    tried = np.arange(1.0, 300.0)[:, None]
    cost = 3600.0 * v / tried + price * tried + 0.03 * price * tried**2 / v
    np.testing.assert_array_equal(batch, tried[cost.argmin(axis=0), 0])


@pytest.mark.parametrize("absence", [-0.01, 0.0, 1e-5, 1e-3, 0.01])
def test_not_computing_gains_no_more_than_is_tolerated(absence):
    v, price, label_pay = np.full(3, 0.03), np.array([0.06, 0.5, 5.0]), np.full(3, 150.0)
    asked = {"stake": 40_000.0, "price": price, "margin_rate": 0.03, "absence": np.full(3, absence)}
    asked |= {"label_pay": label_pay, "labels": np.full(3, 200.0)}
    batch, unproven = best_batches(sampling=v, **asked)
    gain = price * batch * np.maximum(1.0 - batch * max(absence, 0.0) / v, 0.0)
    np.testing.assert_array_equal(unproven, gain > TOLERATED_GAIN * label_pay * (1 + 1e-9))
    assert (unproven[:2] == 0).all()  # who is asked for one sample at 5 cannot be asked for less
    flat, _ = best_batches(sampling=np.zeros(3), **asked)
    np.testing.assert_array_equal(flat, [16.0, 3.0, 1.0])


@pytest.mark.parametrize(
    ("term", "value", "words"),
    [
        ("joint_cap", 0.0, "joint_cap is below its computing_base"),
        ("total_labels", 1.0, "total_labels are fewer"),
        ("joint_slope", float("nan"), "joint_slope is not finite"),
    ],
)
def test_absurd_terms_are_refused(term, value, words):
    contract = plan_audition(joint_inputs(3))
    contract.require_sound_terms()
    with pytest.raises(InputError, match=words):
        replace(contract, **{term: np.full(3, value)}).require_sound_terms()
