"""Whole batch sizes that are worth most for a given sum of money. Arrays in, arrays out; looks nowhere.

The task: minimise Σ stake_i/D_i + price_i D_i over whole D_i within [lowest_i, highest_i], Σ price_i D_i ≤ money,
where stake_i = κ v_i. Without the last condition it falls apart into one small task per client; with it, a Lagrange
multiplier λ makes every price (1 + λ) times as high (docs/mechanism.md, section 4), and what rounding leaves over is
spent on those who can still use it.
"""

from __future__ import annotations

import numpy as np

from truthfl.mechanism.checks import FloatArray, IntArray

BISECTIONS = 60
REFILLS = 64
LARGEST_EXCHANGE = 256  # above so many clients one unit here or there no longer matters
EXCHANGES = 200


def best_whole_batch(stake: FloatArray, price: FloatArray) -> IntArray:
    """The whole D ≥ 1 that minimises stake/D + price·D: the smallest with D(D+1) ≥ stake/price."""
    size = stake / price
    size *= 4.0
    size += 1.0
    np.sqrt(size, out=size)
    size -= 1.0
    size *= 0.5 * (1.0 - 1e-15)
    np.ceil(size, out=size)
    np.clip(size, 1.0, 2.0**62, out=size)
    return size.astype(np.int64)


def spend_at_most(money: float, stake: FloatArray, price: FloatArray, lowest: IntArray, highest: IntArray) -> IntArray:
    """The task of this module. `lowest` must be affordable; `highest` is what each would get if money were no matter.

    No single client's batch can be changed for the better; nor, in a federation of up to 256 clients, can some samples
    of one be exchanged for as many of another's as they pay for.
    """
    if float(price @ highest) <= money:
        return highest
    batches = _lagrangian(money, stake, price, lowest, highest)
    for _ in range(REFILLS):
        left = money - float(price @ batches)
        able = (batches < highest) & (price <= left)
        if not able.any():
            break
        share = left + float(price[able] @ batches[able])
        refilled = _lagrangian(share, stake[able], price[able], batches[able], highest[able])
        if (refilled == batches[able]).all():  # the Lagrangian cannot split ties: one sample for the best of them
            refilled[np.argmax(_gain(stake, price, batches, batches + 1)[able])] += 1
        batches[able] = refilled
    if len(batches) <= LARGEST_EXCHANGE:
        _exchange(money, stake, price, lowest, highest, batches)
    while float(price @ batches) > money:  # rounding errors of the sum itself
        batches[np.argmax(np.where(batches > lowest, price, -np.inf))] -= 1
    return batches


def _lagrangian(money: float, stake: FloatArray, price: FloatArray, lowest: IntArray, highest: IntArray) -> IntArray:
    """The batches at the smallest multiplier whose total is within the money."""

    def at(log_multiplier: float) -> IntArray:
        batches = best_whole_batch(stake * np.exp(-log_multiplier), price)
        return np.clip(batches, lowest, highest, out=batches)

    cheap, dear = 0.0, 1.0
    while float(price @ at(dear)) > money and dear < 1e3:
        cheap, dear = dear, 2.0 * dear
    for _ in range(BISECTIONS):
        middle = 0.5 * (cheap + dear)
        if float(price @ at(middle)) > money:
            cheap = middle
        else:
            dear = middle
    batches = at(dear)
    return batches if float(price @ batches) <= money else lowest.copy()


def _gain(stake: FloatArray, price: FloatArray, old: IntArray, new: IntArray) -> FloatArray:
    """How much better stake/D + price·D gets from old to new."""
    gain: FloatArray = stake / old - stake / new + price * (old - new)
    return gain


def _exchange(
    money: float,
    stake: FloatArray,
    price: FloatArray,
    lowest: IntArray,
    highest: IntArray,
    batches: IntArray,
) -> None:
    """Take some samples from one client and give another as many as that pays for, while it helps. In place."""
    taken = np.array([1, 2, 3, 4, 6, 8, 12, 16])[:, None]
    for _ in range(EXCHANGES):
        left = money - float(price @ batches)
        fewer = np.maximum(batches - taken, lowest)
        loss = -_gain(stake, price, batches, fewer)
        freed = left + price * (batches - fewer)
        room = np.minimum(np.floor(freed[:, :, None] / price), highest - batches)
        more = batches + np.maximum(room, 0).astype(np.int64)
        benefit = _gain(stake, price, batches, more) - loss[:, :, None]
        benefit[:, np.arange(len(batches)), np.arange(len(batches))] = 0.0
        step, giver, taker = np.unravel_index(int(np.argmax(benefit)), benefit.shape)
        scale = stake[taker] / batches[taker] + stake[giver] / batches[giver]
        if benefit[step, giver, taker] <= 1e-12 * scale:
            return
        batches[giver] = fewer[step, giver]
        batches[taker] = more[step, giver, taker]
