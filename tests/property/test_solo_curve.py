"""The solo curve: its level falls, and its spread is that of clients with other samples, though the pilot has few."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.auditions import NUMBERS, curve
from truthfl import InputError
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.solo import level_variance
from truthfl.learning.data.partition import Partition, taken_in_turns
from truthfl.learning.training.draws import Purpose, generator

pytestmark = pytest.mark.properties


def test_the_curve_interpolates_between_measured_numbers():
    solo = curve(power=1.0)
    np.testing.assert_allclose(solo.level(NUMBERS), 0.3 + 60 / NUMBERS)
    n = np.array([40.0, 77.0, 150.0])
    np.testing.assert_allclose(solo.slope(n), 60 / n, rtol=0.05)
    assert (solo.slope_error(n) < 0.05 * solo.slope(n)).all()
    np.testing.assert_allclose(solo.spread([20.0, 300.0]), [0.04 * 15, 0.04])
    np.testing.assert_array_equal(solo.level([1.0, 9999.0]), solo.level(NUMBERS[[0, -1]]))
    with_median = solo.spread(n) * np.sqrt(1 + level_variance(4)) / solo.slope(n)
    np.testing.assert_allclose(solo.risk(n, 4), with_median)


@pytest.mark.parametrize(
    ("labels", "loss", "words"),
    [
        ([5.0], np.zeros((4, 1)), "at least two numbers of labels"),
        ([5.0, 5.0], np.zeros((4, 2)), "at least two numbers of labels, rising"),
        ([5.0, 8.0], np.zeros((2, 2)), "3 or more clients"),
        ([5.0, 8.0], np.zeros((4, 3)), "one row of finite losses"),
        ([5.0, 8.0], np.array([[1.0, np.nan]] * 4), "one row of finite losses"),
    ],
)
def test_what_is_no_curve_is_refused(labels, loss, words):
    with pytest.raises(InputError, match=words):
        SoloCurve(np.array(labels), loss)


@given(st.integers(0, 2**32 - 1), st.integers(3, 9), st.floats(0.0, 2.0), st.integers(2, 12))
@settings(max_examples=60, deadline=None)
def test_the_level_falls_whatever_was_measured_and_keeps_the_mean(seed, clients, noise, count):
    """Where means rise they are pooled; the result is the falling sequence nearest to them (checked by its sums)."""
    rng, labels = np.random.default_rng(seed), np.arange(8.0, 8.0 + count)
    loss = 1.0 - 0.05 * np.arange(count) + noise * rng.standard_normal((clients, count))
    solo = SoloCurve(labels, loss)
    level, means = solo.level(labels), loss.mean(axis=0)
    assert (np.diff(level) <= 1e-12).all()
    assert (solo.slope(labels) >= -1e-12).all()
    assert level.mean() == pytest.approx(means.mean())
    # by the Kuhn-Tucker conditions of least squares over falling sequences
    excess = np.cumsum(means - level)
    assert (excess <= 1e-9).all()
    np.testing.assert_allclose(excess[:-1][np.diff(level) < -1e-9], 0.0, atol=1e-9)
    if (np.diff(means) <= 0).all():
        np.testing.assert_allclose(level, means)


POOL, CLIENTS = 100, 24


def means_of_clients(pool, rows, numbers):
    """For each client and number n, the mean of their first n values: its standard deviation is 1 / √n."""
    return np.stack([pool[rows[:, :n]].mean(axis=1) for n in numbers], axis=1)


def test_the_spread_of_clients_who_take_turns_is_that_of_clients_with_other_samples():
    """Clients of 10 and 20 values, drawn from pools of 100: within a turn of five clients, all have different ones."""
    numbers = np.array([10, 20])
    turns, at_random = [], []
    drawn = np.random.default_rng(0)
    for seed in range(600):
        pool = drawn.standard_normal(POOL)
        once = Partition(np.zeros(CLIENTS * 20, dtype=np.int64), np.arange(CLIENTS + 1) * 20)
        taken = taken_in_turns(once, np.zeros(POOL, dtype=np.int64), seed).rows.reshape(CLIENTS, 20)
        each = np.stack([drawn.permutation(POOL)[:20] for _ in range(CLIENTS)])
        turns.append(SoloCurve(numbers, means_of_clients(pool, taken, numbers), POOL // 20).spread(numbers) ** 2)
        at_random.append(SoloCurve(numbers, means_of_clients(pool, each, numbers)).spread(numbers) ** 2)
    error = np.std(turns, axis=0) / np.sqrt(len(turns))
    assert (np.abs(np.mean(turns, axis=0) - 1 / numbers) < 4 * error).all()
    assert (4 * error < 0.07 / numbers).all()
    too_small = np.mean(at_random, axis=0) * numbers
    np.testing.assert_allclose(too_small, 1 - numbers / POOL, atol=0.03)  # as of draws from a finite population


@given(st.integers(0, 2**32 - 1), st.integers(3, 30), st.none() | st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_degrees_of_freedom_are_clients_less_turns_and_none_is_alone(seed, clients, turn):
    loss = np.random.default_rng(seed).standard_normal((clients, 2))
    solo = SoloCurve(np.array([8.0, 16.0]), loss, turn)
    sizes = [len(part) for part in solo._turns]
    assert sum(sizes) == clients
    assert min(sizes) >= 2
    assert solo.freedom == clients - len(sizes) >= 1
    shifted = SoloCurve(solo.labels, loss + np.repeat(np.arange(len(sizes)), sizes)[:, None], turn)
    np.testing.assert_allclose(shifted.spread([8.0, 16.0]), solo.spread([8.0, 16.0]))  # levels of turns do not count


@given(
    st.lists(st.lists(st.integers(0, 12), min_size=3, max_size=3).filter(any), min_size=1, max_size=8),
    st.lists(st.integers(1, 25), min_size=3, max_size=3),
    st.integers(0, 99),
)
@settings(max_examples=100, deadline=None)
def test_clients_take_turns_through_the_samples_of_each_class(counts, there, seed):
    """Classes stay as drawn; a sample is used again after all of its class; nobody has one twice if that can be."""
    labels = generator(seed, Purpose.SPLIT).permutation(np.repeat(np.arange(3), there))
    rows = [np.flatnonzero(labels == kind)[0] for own in counts for kind in range(3) for _ in range(own[kind])]
    starts = np.concatenate(([0], np.cumsum([sum(own) for own in counts])))
    taken = taken_in_turns(Partition(np.array(rows, dtype=np.int64), starts), labels, seed)
    np.testing.assert_array_equal(taken.starts, starts)
    for client, own in enumerate(counts):
        held = taken.rows_of(client)
        np.testing.assert_array_equal(np.bincount(labels[held], minlength=3), own)
        for kind in range(3):
            of_kind = held[labels[held] == kind]
            assert len(np.unique(of_kind)) == min(own[kind], there[kind])
    for kind in range(3):
        in_order = taken.rows[labels[taken.rows] == kind]
        assert len(np.unique(in_order[: there[kind]])) == min(len(in_order), there[kind])
        used = np.bincount(in_order, minlength=len(labels))[labels == kind]
        assert used.max() - used.min() <= 1
