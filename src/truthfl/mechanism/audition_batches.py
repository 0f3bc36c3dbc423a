"""Batch sizes of the audition contract's joint part, whose margin counts as a cost. docs/mechanism.md, section 8."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from truthfl.mechanism.checks import FloatArray

FLAT_BATCH = 16  # asked for where the joint loss does not show the batch size; its pay is then a fixed amount
TOLERATED_GAIN = 0.01  # of pay, by not computing
NEWTON_STEPS = 3  # to about 1e-11 of the batch


def best_batches(
    *,
    stake: float,
    sampling: FloatArray,
    price: FloatArray,
    margin_rate: float,
    absence: FloatArray,
    label_pay: FloatArray,
    labels: FloatArray,
    most_slope: FloatArray | float = np.inf,
) -> tuple[FloatArray, np.ndarray]:
    """Whole batch sizes D'_i from 1 to n'_i, and a mask of clients whom not computing would gain more than tolerated.

    stake        κ
    sampling     v_i
    price        T q_i c_p
    margin_rate  z σ: the margin per unit of the joint slope
    absence      Δ_i, by how much the loss rises if she does not compute
    label_pay    expected label pay
    labels       n'_i
    most_slope   the largest joint slope Φ at which further labels do not pay for themselves by the joint loss

    D'_i minimises κ v/D + P D + z σ P D²/v, the last term being the margin. Not computing then saves P D and costs
    Φ Δ = P D² Δ/v. Where the difference is more than 1% of pay, she is asked for the batch at which it is 0, v/Δ, or
    for so little that it is 1%, whichever serves the server better.
    """
    visible = sampling > 0
    v = np.where(visible, sampling, 1.0)
    stakes, margins = stake * v, margin_rate * price

    def cost(batch: FloatArray, at: np.ndarray | slice = slice(None)) -> FloatArray:
        return np.asarray(stakes[at] / batch + price[at] * batch + margins[at] * np.square(batch) / v[at])

    with np.errstate(over="ignore"):
        most = np.minimum(most_slope * v / price, 1e18)
    largest = np.clip(np.floor(np.sqrt(most)), 1.0, labels)
    batch = np.minimum(_whole(cost, _stationary(stakes, v, price, margin_rate)), largest)
    batch = np.where(visible, batch, np.minimum(FLAT_BATCH, labels))
    tolerated = TOLERATED_GAIN * label_pay
    gain = _gain(batch, visible, v, price, absence)
    gaining = np.flatnonzero(gain > tolerated)
    if len(gaining):
        there = absence[gaining] > 0
        less = np.clip(np.floor(tolerated[gaining] / price[gaining]), 1.0, batch[gaining])
        proven = np.maximum(np.ceil(v[gaining] / np.where(there, absence[gaining], 1.0)), 1.0)
        provable = there & visible[gaining] & (proven <= largest[gaining])
        better = provable & (cost(np.where(provable, proven, 1.0), gaining) < cost(less, gaining))
        batch[gaining] = np.where(better, proven, less)
        gain[gaining] = _gain(batch[gaining], visible[gaining], v[gaining], price[gaining], absence[gaining])
    return batch, gain > tolerated * (1.0 + 1e-9)


def _gain(batch: FloatArray, visible: np.ndarray, v: FloatArray, price: FloatArray, absence: FloatArray) -> FloatArray:
    """What a client gains by not computing: P D (1 − D Δ/v), or P D where pay does not depend on the loss."""
    lost = np.minimum(batch * np.maximum(absence, 0.0) / v, 1.0) * visible
    return np.asarray(price * batch * np.maximum(1.0 - lost, 0.0))


def _stationary(stakes: FloatArray, v: FloatArray, price: FloatArray, margin_rate: float) -> FloatArray:
    """The D with κ v/D² = P (1 + 2 z σ D/v), by Newton's method.

    With h = √(κ v/P), x = D/h and c = 2 z σ h/v that is x² (1 + c x) = 1. From (1 + c)^(−1/3), which is at most a few
    per cent too large, each step squares the error.
    """
    highest: FloatArray = np.sqrt(stakes / price)
    if margin_rate == 0.0:
        return highest
    c = highest * (2.0 * margin_rate) / v
    x: FloatArray = np.exp(np.log(c + 1.0) * (-1.0 / 3.0))
    for _ in range(NEWTON_STEPS):
        cx = c * x
        x = x - ((cx + 1.0) * x * x - 1.0) / ((3.0 * cx + 2.0) * x)
    return x * highest


def _whole(cost: Callable[[FloatArray], FloatArray], batch: FloatArray) -> FloatArray:
    """The whole neighbour with the lower cost."""
    below = np.maximum(np.floor(batch), 1.0)
    return below + (cost(below) > cost(below + 1.0))
