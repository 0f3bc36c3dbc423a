"""Every random draw of a job, as a hash of what it is for: (seed, purpose, client, round, step, position).

No stream, no state: any engine, in any order, on any number of threads, draws the same, and 100,000 clients cost no
100,000 generators. The mixing function is that of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014); the compiled kernel
has the same few lines in C. Looks nowhere.
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
    """What a draw is for; draws for different purposes have nothing to do with each other."""

    BATCH = 1
    LABEL = 2
    LABEL_ERROR = 3
    AVAILABILITY = 4
    TEST = 5
    SPLIT = 6
    INIT = 7
    REPORT = 8


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
    """Whole numbers from 0 to high − 1, high < 2³²: the upper half of the bits times high, without a division."""
    limit = np.asarray(high).astype(np.uint64)
    return (((random_bits >> np.uint64(32)) * limit) >> np.uint64(32)).astype(np.int64)


def uniform(random_bits: BitArray) -> NDArray[np.float64]:
    """Numbers in [0, 1), from the upper 53 bits."""
    return (random_bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def generator(seed: int, purpose: Purpose, *counters: int) -> np.random.Generator:
    """For what is drawn in one place (a split, initial weights, one report's noise): an ordinary generator."""
    return np.random.default_rng(key(seed, purpose, *counters).tolist())


def _mix(value: BitArray) -> BitArray:
    value = (value ^ (value >> np.uint64(30))) * FIRST
    value = (value ^ (value >> np.uint64(27))) * SECOND
    return value ^ (value >> np.uint64(31))
