"""Whole batch sizes within a budget, and the search for what a budget allows.

The task: minimise Σ stake_i/D_i + price_i D_i over whole D_i within [lowest_i, highest_i], Σ price_i D_i ≤ money,
where stake_i = κ v_i. Without the last condition there is one independent task per client. With it, a Lagrange
multiplier λ makes every price (1 + λ) times as high (docs/mechanism.md, section 4). Money left over by rounding is
spent on clients below their `highest`. With few clients the result can cost some per cent more than the best; a
search then finds the best.

The function is a sum over all clients, so each call counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from truthfl.contracts.setting import FloatArray, IntArray, inner

BISECTIONS = 60
MOST_LOG_MULTIPLIER = 512.0
ROUNDING = 1.001  # of the price of one sample, as a difference of sums
REFILLS = 1000
IMPROVE_UP_TO = 256  # clients; with more, single samples no longer matter
MOST_COMBINATIONS = 1 << 17  # in the search for the best assignment


def best_whole_batch(stake: FloatArray, price: FloatArray, factor: float = 1.0) -> IntArray:
    """The whole D ≥ 1 that minimises factor·stake/D + price·D: the smallest with D(D+1) ≥ factor·stake/price."""
    return _best_size(stake / price, factor).astype(np.int64)


def _best_size(ratio: FloatArray, factor: float) -> FloatArray:
    """`best_whole_batch` for stake/price, as floats."""
    size = ratio * (4.0 * factor)
    size += 1.0
    np.sqrt(size, out=size)
    size -= 1.0
    size *= 0.5 * (1.0 - 1e-15)
    np.ceil(size, out=size)
    return np.clip(size, 1.0, 2.0**62, out=size)


def spend_at_most(money: float, stake: FloatArray, price: FloatArray, lowest: IntArray, highest: IntArray) -> IntArray:
    """Solve the task of this module. `lowest` must be affordable; `highest` are the best batches without a budget.

    No change of a single client's batch improves the result. Up to 256 clients it is optimal, unless the search for the
    optimum would take too long.
    """
    if inner(price, highest) <= money:
        return highest
    batches, multiplier = _lagrangian(money, stake, price, lowest, highest)
    for _ in range(REFILLS):
        left = money - inner(price, batches)
        able = (batches < highest) & (price <= left)
        if not able.any():
            break
        share = left + inner(price[able], batches[able])
        refilled, _ = _lagrangian(share, stake[able], price[able], batches[able], highest[able])
        if (refilled == batches[able]).all():  # ties at the multiplier: one more sample for each of the best
            worth = stake[able] / (refilled * (refilled + 1.0)) / price[able]
            best = np.argsort(-worth, kind="stable")
            refilled[best[np.cumsum(price[able][best]) <= left]] += 1
        batches[able] = refilled
    if len(batches) <= IMPROVE_UP_TO:
        batches = _improve(batches, multiplier, money, stake, price, lowest, highest)
    return batches


def _lagrangian(
    money: float, stake: FloatArray, price: FloatArray, lowest: IntArray, highest: IntArray
) -> tuple[IntArray, float]:
    """The batches at the smallest multiplier 1 + λ whose total is within the money, and that multiplier."""
    ratio = stake / price

    def at(log_multiplier: float) -> IntArray:
        return sizes_at(log_multiplier).astype(np.int64)

    def sizes_at(log_multiplier: float) -> FloatArray:
        sizes = _best_size(ratio, float(np.exp(-log_multiplier)))
        return np.clip(sizes, lowest, highest, out=sizes)

    def spent(log_multiplier: float) -> float:
        return float((sizes_at(log_multiplier) * price).sum())

    first = spent(0.0)
    if first <= money:
        return at(0.0), 1.0

    def is_one_sample(_low: float, _high: float) -> bool:
        return len(price) > IMPROVE_UP_TO and search.over - search.under <= dearest

    dearest = ROUNDING * float(price.max())
    search = Search(spent, money, first, float(price.min()), is_one_sample)
    if not search.bracket(MOST_LOG_MULTIPLIER):
        return lowest.copy(), float(np.exp(MOST_LOG_MULTIPLIER))
    dear = search.finish(2 * BISECTIONS, 1e-15)
    batches = at(dear)
    return (batches if inner(price, batches) <= money else lowest.copy()), float(np.exp(dear))


def _improve(
    batches: IntArray,
    multiplier: float,
    money: float,
    stake: FloatArray,
    price: FloatArray,
    lowest: IntArray,
    highest: IntArray,
) -> IntArray:
    """The best assignment within the money; the given one if it is the best or if the search would take too long.

    At the multiplier m = 1 + λ, no assignment costs less than Σ min_D (stake/D + m price D) − λ money. So, given a good
    solution, only sizes whose term is within the gap of the minimum can be part of a better one. These are often two or
    three per client. They are combined client by client; combinations that are dominated in money and cost are dropped.
    """
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


INFINITE = float("inf")


@dataclass(eq=False)
class Search:
    """Holds an interval in which the function falls to the budget, and makes it smaller.

    function   falls with x; this search is for slow functions
    budget     above 0
    first      function(0), above the budget
    left       this part of the budget may be left over
    is_done    called with both ends; says whether nothing in between is better than the upper end
    over       function − budget at `low`: above 0
    under      function − budget at `high`, at most 0; `high` is infinite before it is known
    """

    function: Callable[[float], float]
    budget: float
    first: float
    left: float
    is_done: Callable[[float, float], bool] = lambda low, high: False  # noqa: ARG005
    low: float = 0.0
    high: float = INFINITE
    over: float = field(init=False)
    under: float = 0.0

    def __post_init__(self) -> None:
        self.over = self.first - self.budget

    def bracket(self, most: float) -> bool:
        """Find an upper end, 1, 2, 4, … up to `most`, unless it is known; return whether there is one."""
        x = 1.0
        while self.high == INFINITE and x <= most:
            if x > self.low:
                self.try_at(x)
            x *= 2.0
        return self.high < INFINITE

    def finish(self, steps: int, narrowest: float) -> float:
        """Make the interval smaller, in at most this many steps or until it is narrow; return its upper end."""
        for step in range(steps):
            if self.is_close or self.high - self.low <= narrowest * self.high or self.is_done(self.low, self.high):
                break
            self.try_at(_inside(self.low, self.over, self.high, self.under, step))
        return self.high

    @property
    def is_close(self) -> bool:
        """Whether hardly anything is left of the budget at the upper end."""
        return self.high < INFINITE and -self.under < self.left

    def try_at(self, x: float) -> float:
        """Call the function, keep the smaller interval, and return the value."""
        value = self.function(x)
        if value > self.budget:
            self.low, self.over = x, value - self.budget
        else:
            self.high, self.under = x, value - self.budget
        return value


def _inside(low: float, over: float, high: float, under: float, step: int) -> float:
    """A point in the interval: by false position and by bisection in turn."""
    share = over / (over - under) if step % 2 else 0.5
    return low + (high - low) * min(max(share, 1e-3), 1.0 - 1e-3)
