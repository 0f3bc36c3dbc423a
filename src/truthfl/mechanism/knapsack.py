"""Improves a good solution of the budgeted task to the optimum, if the search is not too long.

At the multiplier m = 1 + λ, no assignment costs less than Σ min_D (stake/D + m price D) − λ money. So, given a good
solution, only sizes whose term is within the gap of the minimum can be part of a better one: often two or three per
client. These are combined client by client, keeping only combinations that are not dominated in money and cost.
"""

from __future__ import annotations

import numpy as np

from truthfl.mechanism.checks import FloatArray, IntArray, inner

MOST_COMBINATIONS = 1 << 17


def improve(
    batches: IntArray,
    multiplier: float,
    money: float,
    stake: FloatArray,
    price: FloatArray,
    lowest: IntArray,
    highest: IntArray,
) -> IntArray:
    """The best assignment within the money; the given one if it is the best, or if the search would be too long."""
    worth = float((stake / batches + price * batches).sum())
    relaxed = np.sqrt(stake / (multiplier * price))
    least_size = _better_neighbour(np.clip(relaxed, lowest, highest), stake, multiplier * price, lowest, highest)
    least = stake / least_size + multiplier * price * least_size
    gap = worth - (float(least.sum()) - (multiplier - 1.0) * money)
    if gap <= 1e-12 * worth:
        return batches
    first, last = _sizes_within(least + gap, stake, multiplier * price, lowest, highest)
    order = np.argsort(last - first, kind="stable")
    cheapest_rest = np.concatenate((np.cumsum((price * first)[order][::-1])[::-1][1:], [0.0]))
    spent, cost = np.zeros(1), np.zeros(1)
    reached = 0.0
    history: list[tuple[IntArray, IntArray]] = []
    for position, client in enumerate(order):
        sizes = np.arange(first[client], last[client] + 1)
        if len(spent) * len(sizes) > MOST_COMBINATIONS:
            return batches
        reached += float(least[client])
        all_spent = np.add.outer(spent, price[client] * sizes).ravel()
        all_cost = np.add.outer(cost, stake[client] / sizes + price[client] * sizes).ravel()
        within = all_cost + (multiplier - 1.0) * all_spent - reached <= gap * (1.0 + 1e-9)
        within &= all_spent + cheapest_rest[position] <= money
        kept = np.flatnonzero(within)
        kept = kept[np.lexsort((all_cost[kept], all_spent[kept]))]
        undercut = np.minimum.accumulate(np.concatenate(([np.inf], all_cost[kept])))[:-1]
        kept = kept[all_cost[kept] < undercut]
        if not len(kept):
            return batches
        spent, cost = all_spent[kept], all_cost[kept]
        history.append((kept // len(sizes), sizes[kept % len(sizes)]))
    best = int(np.argmin(cost))
    if cost[best] >= worth * (1.0 - 1e-14):
        return batches
    improved = batches.copy()
    for client, (parent, size) in zip(order[::-1], reversed(history), strict=True):
        improved[client] = size[best]
        best = int(parent[best])
    return improved if inner(price, improved) <= money else batches


def _better_neighbour(
    size: FloatArray, stake: FloatArray, price: FloatArray, lowest: IntArray, highest: IntArray
) -> FloatArray:
    below, above = np.clip(np.floor(size), lowest, highest), np.clip(np.ceil(size), lowest, highest)
    return np.where(stake / below + price * below <= stake / above + price * above, below, above)


def _sizes_within(
    limit: FloatArray, stake: FloatArray, price: FloatArray, lowest: IntArray, highest: IntArray
) -> tuple[IntArray, IntArray]:
    """The smallest and the largest whole size with stake/D + price·D ≤ limit."""
    root = np.sqrt(np.maximum(np.square(limit) - 4.0 * stake * price, 0.0))
    largest = (limit + root) / (2.0 * price)
    smallest = stake / (price * largest)
    first = np.clip(np.floor(smallest * (1.0 + 1e-12)), lowest, highest)
    last = np.clip(np.ceil(largest * (1.0 - 1e-12)), lowest, highest)
    return first.astype(np.int64), last.astype(np.int64)
