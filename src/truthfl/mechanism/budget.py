"""The best whole batch sizes within a budget.

The task: minimise Σ stake_i/D_i + price_i D_i over whole D_i within [lowest_i, highest_i], Σ price_i D_i ≤ money,
where stake_i = κ v_i. Without the last condition there is one independent task per client; with it, a Lagrange
multiplier λ makes every price (1 + λ) times as high (docs/mechanism.md, section 4), and money left over by rounding is
spent on clients below their `highest`. The result is at most one sample per client away from the best; `knapsack`
improves it.
"""

from __future__ import annotations

import numpy as np

from truthfl.mechanism.blocks import in_blocks
from truthfl.mechanism.budget_search import Search
from truthfl.mechanism.checks import FloatArray, IntArray, inner
from truthfl.mechanism.knapsack import improve

BISECTIONS = 60
MOST_LOG_MULTIPLIER = 512.0
ROUNDING = 1.001  # of the price of one sample, as a difference of sums
REFILLS = 1000
IMPROVE_UP_TO = 256  # clients; with more, single samples no longer matter
SAMPLED_FROM, SAMPLE = 1 << 16, 1 << 13  # from so many clients on, the multiplier is first searched on so many of them


def best_whole_batch(stake: FloatArray, price: FloatArray, factor: float = 1.0) -> IntArray:
    """The whole D ≥ 1 that minimises factor·stake/D + price·D: the smallest with D(D+1) ≥ factor·stake/price."""
    return np.asarray(in_blocks(lambda stake, price: _best_size(stake / price, factor).astype(np.int64), stake, price))


def _best_size(ratio: FloatArray, factor: float) -> FloatArray:
    """`best_whole_batch` for stake/price, as floats."""
    size = ratio * (4.0 * factor)
    size += 1.0
    np.sqrt(size, out=size)
    size -= 1.0
    size *= 0.5 * (1.0 - 1e-15)
    np.ceil(size, out=size)
    np.clip(size, 1.0, 2.0**62, out=size)
    return size


def spend_at_most(money: float, stake: FloatArray, price: FloatArray, lowest: IntArray, highest: IntArray) -> IntArray:
    """Solve the task of this module. `lowest` must be affordable; `highest` are the best batches without a budget.

    No change of a single client's batch improves the result. Up to 256 clients it is optimal, unless the search for the
    optimum would take too long (`knapsack`).
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
        batches = improve(batches, multiplier, money, stake, price, lowest, highest)
    return batches


def _lagrangian(
    money: float, stake: FloatArray, price: FloatArray, lowest: IntArray, highest: IntArray
) -> tuple[IntArray, float]:
    """The batches at the smallest multiplier 1 + λ whose total is within the money, and that multiplier."""
    arrays = (stake / price, price, lowest, highest)

    def at(log_multiplier: float) -> IntArray:
        batches = _best_size(arrays[0], float(np.exp(-log_multiplier))).astype(np.int64)
        return np.clip(batches, lowest, highest, out=batches)

    first = _spent(0.0, *arrays)
    if first <= money:
        return at(0.0), 1.0
    dearest = float(price.max())

    def is_one_sample(low: float, high: float) -> bool:
        """Whether the batches at both ends differ by one sample of one client."""
        if len(price) <= IMPROVE_UP_TO or search.over - search.under > ROUNDING * dearest:
            return False
        return int((at(low) - at(high)).sum()) <= 1

    search = Search(lambda x: _spent(x, *arrays), money, first, float(price.min()), is_one_sample)
    if len(price) >= SAMPLED_FROM:
        some = slice(None, None, len(price) // SAMPLE)
        ratio, own_price, low, high = arrays[0][some].copy(), price[some].copy(), lowest[some], highest[some]
        search.narrow_by(lambda x: _spent(x, ratio, own_price, low, high))
    if not search.bracket(MOST_LOG_MULTIPLIER):
        return lowest.copy(), float(np.exp(MOST_LOG_MULTIPLIER))
    dear = search.finish(2 * BISECTIONS, 1e-15)
    batches = at(dear)
    return (batches if inner(price, batches) <= money else lowest.copy()), float(np.exp(dear))


def _spent(log_multiplier: float, ratio: FloatArray, price: FloatArray, lowest: IntArray, highest: IntArray) -> float:
    """Σ price_i D_i at this multiplier; `ratio` is stake/price."""
    factor = float(np.exp(-log_multiplier))

    def spent(ratio: FloatArray, price: FloatArray, lowest: IntArray, highest: IntArray) -> FloatArray:
        batches = _best_size(ratio, factor)
        np.maximum(batches, lowest, out=batches)
        np.minimum(batches, highest, out=batches)
        batches *= price
        return batches

    return float(in_blocks(spent, ratio, price, lowest, highest).sum())
