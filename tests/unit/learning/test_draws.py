"""Draws depend on what they are for and on nothing else, and are as even as random numbers should be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from truthfl.learning.training.draws import Purpose, below, bits, generator, key, uniform


def test_golden_values_of_splitmix64():
    """The published reference implementation, seeded with 1234567, gives these five numbers first."""
    state = np.array(1234567, dtype=np.uint64)
    assert bits(state, 5).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(st.integers(0, 2**70), st.integers(1, 50), st.integers(1, 50))
def test_a_draw_is_the_same_alone_or_among_others(seed, clients, rounds):
    together = bits(key(seed, Purpose.BATCH, np.arange(clients)[:, None], np.arange(rounds)), 7)
    alone = bits(key(seed, Purpose.BATCH, clients - 1, rounds - 1), 9)
    assert (together[-1, -1] == alone[:7]).all()


@given(st.integers(0, 2**64 - 1))
def test_seeds_purposes_and_counters_all_matter(seed):
    keys = [
        key(seed, Purpose.BATCH, 1, 2),
        key(seed, Purpose.BATCH, 2, 1),
        key(seed, Purpose.BATCH, 1),
        key(seed, Purpose.LABEL, 1, 2),
        key(seed + 1, Purpose.BATCH, 1, 2),
    ]
    assert len({int(k) for k in keys}) == len(keys)


def test_whole_numbers_are_even_and_in_range():
    drawn = below(bits(key(3, Purpose.BATCH, np.arange(1000)), 1000), 7)
    assert drawn.min() == 0
    assert drawn.max() == 6
    counts = np.bincount(drawn.ravel(), minlength=7)
    assert ((counts - 1e6 / 7) ** 2 / (1e6 / 7)).sum() < 30  # chi-squared with 6 degrees of freedom: 30 is 4e-5
    share = uniform(bits(key(4, Purpose.TEST), 100_000))
    assert 0 <= share.min() <= share.max() < 1
    assert share.mean() == pytest.approx(0.5, abs=0.005)
    assert abs(np.corrcoef(share[:-1], share[1:])[0, 1]) < 0.02


def test_generators_repeat():
    assert generator(5, Purpose.SPLIT).random() == generator(5, Purpose.SPLIT).random()
    assert generator(5, Purpose.SPLIT).random() != generator(5, Purpose.INIT).random()
