"""The best whole batch sizes within a budget. Imports `checks` and `knapsack`.

The task: minimise Σ stake_i/D_i + price_i D_i over whole D_i within [lowest_i, highest_i], Σ price_i D_i ≤ money,
where stake_i = κ v_i. Without the last condition there is one independent task per client; with it, a Lagrange
multiplier λ makes every price (1 + λ) times as high (docs/mechanism.md, section 4), and money left over by rounding is
spent on clients below their `highest`. The result is at most one sample per client away from the best; `knapsack`
improves it.
"""

from __future__ import annotations

import numpy as np

from truthfl.mechanism.checks import FloatArray, IntArray, inner
from truthfl.mechanism.knapsack import improve

BISECTIONS = 60
REFILLS = 1000
IMPROVE_UP_TO = 256  # clients; with more, single samples no longer matter


def best_whole_batch(stake: FloatArray, price: FloatArray, factor: float = 1.0) -> IntArray:
    """The whole D ≥ 1 that minimises factor·stake/D + price·D: the smallest with D(D+1) ≥ factor·stake/price."""
    size = stake / price
    size *= 4.0 * factor
    size += 1.0
    np.sqrt(size, out=size)
    size -= 1.0
    size *= 0.5 * (1.0 - 1e-15)
    np.ceil(size, out=size)
    np.clip(size, 1.0, 2.0**62, out=size)
    return size.astype(np.int64)


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

    def at(log_multiplier: float) -> IntArray:
        batches = best_whole_batch(stake, price, float(np.exp(-log_multiplier)))
        return np.clip(batches, lowest, highest, out=batches)

    cheap, dear = 0.0, 1.0
    over, under = inner(price, at(cheap)) - money, inner(price, at(dear)) - money
    if over <= 0.0:
        return at(cheap), 1.0
    while under > 0.0 and dear < 700.0:
        cheap, dear, over = dear, 2.0 * dear, under
        under = inner(price, at(dear)) - money
    smallest = float(price.min())
    for step in range(2 * BISECTIONS):
        if under > -smallest or dear - cheap <= 1e-15 * dear:
            break
        share = over / (over - under) if step % 2 else 0.5  # false position and bisection in turn
        middle = cheap + (dear - cheap) * min(max(share, 1e-3), 1.0 - 1e-3)
        excess = inner(price, at(middle)) - money
        if excess > 0.0:
            cheap, over = middle, excess
        else:
            dear, under = middle, excess
    batches = at(dear)
    return (batches if inner(price, batches) <= money else lowest.copy()), float(np.exp(dear))
