"""Counter-based random numbers: each draw is a hash of (seed, purpose, client, round, step, position).

There is no generator state. So all engines draw the same numbers, in any order and on any number of threads. The mixing
function is that of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); the compiled kernel contains the same code in C.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

BitArray = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)


class Purpose(IntEnum):
    """The purpose of a draw; draws for different purposes are independent."""

    BATCH = 1
    LABEL = 2
    LABEL_ERROR = 3
    AVAILABILITY = 4
    TEST = 5
    SPLIT = 6
    INIT = 7
    REPORT = 8
    AUDITION = 9
    ASKED_SAMPLES = 10
    ONE_OF_SEVERAL = 11


def key(seed: int, purpose: Purpose, *counters: ArrayLike) -> BitArray:
    """A hash of seed, purpose and counters; counters broadcast against each other."""
    with np.errstate(over="ignore"):
        value = _mix(np.asarray(np.uint64(seed % 2**64) + GOLDEN * np.uint64(int(purpose))))
        for counter in counters:
            value = _mix(value ^ (np.asarray(counter).astype(np.uint64) + GOLDEN))
    return value


def bits(keys: BitArray, count: int) -> BitArray:
    """64 random bits at positions 0 … count−1 under each key: shape (…, count)."""
    with np.errstate(over="ignore"):
        return _mix(keys[..., None] + GOLDEN * np.arange(1, count + 1, dtype=np.uint64))


def bits_at(keys: BitArray, positions: ArrayLike) -> BitArray:
    """64 random bits under each key at its own position; keys and positions broadcast against each other."""
    with np.errstate(over="ignore"):
        return _mix(keys + GOLDEN * (np.asarray(positions).astype(np.uint64) + np.uint64(1)))


def below(random_bits: BitArray, high: ArrayLike) -> NDArray[np.int64]:
    """Integers from 0 to high − 1, high < 2³²: the upper 32 bits times high, shifted right by 32."""
    limit = np.asarray(high).astype(np.uint64)
    return (((random_bits >> np.uint64(32)) * limit) >> np.uint64(32)).astype(np.int64)


def uniform(random_bits: BitArray) -> NDArray[np.float64]:
    """Numbers in [0, 1), from the upper 53 bits."""
    return (random_bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def generator(seed: int, purpose: Purpose, *counters: int) -> np.random.Generator:
    """A NumPy generator seeded by the hash, for splits, initial weights and the noise of reports."""
    return np.random.default_rng(key(seed, purpose, *counters).tolist())


def _mix(value: BitArray) -> BitArray:
    value = (value ^ (value >> np.uint64(30))) * FIRST
    value = (value ^ (value >> np.uint64(27))) * SECOND
    return value ^ (value >> np.uint64(31))
