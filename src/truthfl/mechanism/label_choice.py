"""The number of labels with the least cost for each of many clients, without trying all numbers for each.

The cost of n labels to a client with label cost u is worth_n + u price_n, a straight line in u for each n. With the
numbers in ascending order and worth falling, n is better than all smaller numbers where u is below a threshold; so of
the numbers up to her samples, a client gets the largest whose threshold is above her u.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.mechanism.blocks import CLIENTS_PER_BLOCK, in_blocks
from truthfl.mechanism.checks import FloatArray, IntArray

Places = NDArray[np.intp]
BINS = 1 << 14
CLOSE = 1e-9  # who is relatively so close to a threshold is decided by computing the costs of all numbers
MATRIX = 1 << 20  # costs that are computed at once


def cheapest_numbers(
    numbers: FloatArray, worth: FloatArray, price: FloatArray, label_cost: FloatArray, samples: IntArray
) -> FloatArray:
    """(N,) Of the numbers up to her samples, the one with the least worth_n + label_cost price_n; the first of equals.

    numbers, worth, price  (K,) ascending numbers, and their worth, which does not rise
    label_cost, samples    (N,) samples are at least numbers[0]
    """
    if len(label_cost) <= CLIENTS_PER_BLOCK:
        return _by_all_costs(numbers, worth, price, label_cost, samples)
    return cheapest_in_bins(numbers, worth, price, label_cost, samples, Bins.of(numbers, label_cost, samples))


def cheapest_in_bins(
    numbers: FloatArray, worth: FloatArray, price: FloatArray, label_cost: FloatArray, samples: IntArray, bins: Bins
) -> FloatArray:
    """`cheapest_numbers` for many clients; their bins do not depend on worth and price."""
    table = _Thresholds.of(worth, price, bins)
    labels, close = in_blocks(
        lambda *block: _by_thresholds(table, numbers, *block), label_cost, bins.position, bins.limit
    )
    unsure = np.flatnonzero(close)
    if len(unsure):
        labels[unsure] = _by_all_costs(numbers, worth, price, label_cost[unsure], samples[unsure])
    return np.asarray(labels)


def _by_all_costs(
    numbers: FloatArray, worth: FloatArray, price: FloatArray, label_cost: FloatArray, samples: IntArray
) -> FloatArray:
    labels = np.empty(len(label_cost))
    rows = max(1, MATRIX // len(numbers))
    for first in range(0, len(labels), rows):
        block = slice(first, first + rows)
        total = worth + label_cost[block, None] * price
        total = np.where(numbers <= samples[block, None], total, np.inf)
        labels[block] = numbers[total.argmin(axis=1)]
    return labels


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of label costs, of equal width in their logarithm, in which about equally many numbers are best.

    position  (N,) the bin of each client
    limit     (N,) the place of the largest number that is not above her samples
    edges     (BINS + 1,) lower edges of the bins, with that of the bin before the first one in front
    """

    position: Places
    limit: Places
    edges: FloatArray

    @classmethod
    def of(cls, numbers: FloatArray, label_cost: FloatArray, samples: IntArray) -> Bins:
        lowest, highest = float(np.log(label_cost.min())), float(np.log(label_cost.max()))
        width = max((highest - lowest) / (BINS - 1), 1e-12)
        place_of = np.searchsorted(numbers, np.arange(int(numbers[-1]) + 1), side="right") - 1

        def places(cost: FloatArray, held: IntArray) -> tuple[Places, Places]:
            position = np.log(cost)
            position -= lowest
            position *= 1.0 / width
            return position.astype(np.intp), place_of[np.minimum(held, len(place_of) - 1)]

        position, limit = in_blocks(places, label_cost, samples)
        return cls(position, limit, np.exp(lowest + width * (np.arange(BINS + 2) - 1.0)))


@dataclass(frozen=True, eq=False)
class _Thresholds:
    """Thresholds of the numbers, by their places.

    own     (K,) below which label cost each number is better than all smaller ones
    later   (K + 1,) the highest threshold from each place on; 0 at the end
    start   (BINS,) by bin of label costs: a place at or after that of the number to choose
    steps   the most places by which a start is too far
    """

    own: FloatArray
    later: FloatArray
    start: Places
    steps: int

    @classmethod
    def of(cls, worth: FloatArray, price: FloatArray, bins: Bins) -> _Thresholds:
        count = len(worth)
        own = np.full(count, np.inf)
        rows = max(1, MATRIX // count)
        for first in range(1, count, rows):
            here = np.arange(first, min(first + rows, count))
            gain, dearer = worth - worth[here, None], price[here, None] - price
            with np.errstate(divide="ignore", invalid="ignore"):
                below = np.where(dearer > 0, gain / dearer, np.where((gain > 0) | (dearer < 0), np.inf, 0.0))
            own[here] = np.where(np.arange(count) < here[:, None], below, np.inf).min(axis=1)
        later = np.append(np.maximum.accumulate(own[::-1])[::-1], 0.0)
        place = count - 1 - np.searchsorted(later[-2::-1], bins.edges, side="right")
        # a bin starts where the one before it does: rounding may move a cost by one
        return cls(own, later, place[:-2].astype(np.intp), int((place[:-2] - place[2:]).max()))


def _by_thresholds(
    table: _Thresholds, numbers: FloatArray, cost: FloatArray, position: Places, limit: Places
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The numbers of labels, and who is too close to a threshold."""
    place = table.start.take(position)
    for _ in range(table.steps):
        place -= table.later.take(place) <= cost
    np.minimum(place, limit, out=place)
    own = table.own.take(place)
    while (below := np.flatnonzero(own <= cost)).size:
        place[below] -= 1
        own[below] = table.own[place[below]]
    own *= 1.0 - CLOSE
    close = own <= cost
    np.multiply(table.later[1:].take(place), 1.0 + CLOSE, out=own)
    above = own > cost
    above &= place < limit
    close |= above
    return numbers.take(place), close
