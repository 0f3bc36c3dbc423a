"""The number of labels with the least cost for each of many clients, without trying all numbers for each.

The cost of n labels to a client with label cost u is worth_n + u price_n, a straight line in u for each n. With the
numbers in ascending order and worth falling, n is better than all smaller numbers where u is below a threshold; so of
the numbers up to her samples, a client gets the largest whose threshold is above her u. Imports `blocks`, `checks`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.mechanism.blocks import CLIENTS_PER_BLOCK, in_blocks
from truthfl.mechanism.checks import FloatArray, IntArray

Places = NDArray[np.int32]
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
    table = _Thresholds.of(numbers, worth, price, float(label_cost.min()), float(label_cost.max()))
    labels, close = in_blocks(lambda cost, held: _by_thresholds(table, numbers, cost, held), label_cost, samples)
    unsure = np.flatnonzero(close)
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
class _Thresholds:
    """
    own     (K,) below which label cost each number is better than all smaller ones
    later   (K + 1,) the highest threshold from each place on; 0 at the end
    start   (BINS,) by bin of label costs: a place at or after that of the number to choose
    steps   the most places by which a start is too far
    limit   by number of samples: the place of the largest number that is not above
    """

    own: FloatArray
    later: FloatArray
    lowest: float
    scale: float
    start: Places
    steps: int
    limit: Places

    @classmethod
    def of(
        cls, numbers: FloatArray, worth: FloatArray, price: FloatArray, lowest: float, highest: float
    ) -> _Thresholds:
        own = np.full(len(numbers), np.inf)
        for k in range(1, len(numbers)):
            gain, dearer = worth[:k] - worth[k], price[k] - price[:k]
            with np.errstate(divide="ignore", invalid="ignore"):
                below = np.where(dearer > 0, gain / dearer, np.where((gain > 0) | (dearer < 0), np.inf, 0.0))
            own[k] = below.min()
        later = np.append(np.maximum.accumulate(own[::-1])[::-1], 0.0)
        width = (highest - lowest) / BINS
        edges = lowest + width * (np.arange(BINS + 2) - 1.0)  # from one bin below: rounding may move a cost by one
        place = len(numbers) - 1 - np.searchsorted(later[-2::-1], edges, side="right")
        last = int(numbers[-1])
        limit = np.searchsorted(numbers, np.arange(last + 1), side="right") - 1
        return cls(
            own,
            later,
            lowest,
            1.0 / width if width > 0 else 0.0,
            place[:-2].astype(np.int32),
            int((place[:-2] - place[2:]).max()),
            limit.astype(np.int32),
        )


def _by_thresholds(
    table: _Thresholds, numbers: FloatArray, cost: FloatArray, samples: IntArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The numbers of labels, and who is too close to a threshold."""
    position = ((cost - table.lowest) * table.scale).astype(np.int32)
    place = table.start[np.minimum(position, BINS - 1)]
    for _ in range(table.steps):
        place -= table.later[place] <= cost
    limit = table.limit[np.minimum(samples, len(table.limit) - 1)]
    np.minimum(place, limit, out=place)
    while (below := np.flatnonzero(table.own[place] <= cost)).size:
        place[below] -= 1
    close = table.own[place] * (1.0 - CLOSE) <= cost
    close |= (place < limit) & (table.later[place + 1] * (1.0 + CLOSE) > cost)
    return numbers[place], close
