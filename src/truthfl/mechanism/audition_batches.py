"""Batch sizes of the audition contract's joint part, whose margin counts as a cost. docs/mechanism.md, section 8.

Imports `checks`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from truthfl.mechanism.checks import FloatArray

FLAT_BATCH = 16  # asked for where the joint loss does not show the batch size; its pay is then a fixed amount
TOLERATED_GAIN = 0.01  # of pay, by not computing
BISECTIONS = 60


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

    def cost(batch: FloatArray) -> FloatArray:
        return np.asarray(stake * v / batch + price * batch + margin_rate * price * np.square(batch) / v)

    largest = np.clip(np.floor(np.sqrt(np.minimum(most_slope * v / price, 1e18))), 1.0, labels)
    batch = np.clip(_whole(cost, _stationary(stake, v, price, margin_rate)), 1.0, largest)
    batch = np.where(visible, batch, np.minimum(FLAT_BATCH, labels))
    tolerated = TOLERATED_GAIN * label_pay
    gain = _gain(batch, visible, v, price, absence)
    less = np.clip(np.floor(tolerated / price), 1.0, batch)
    proven = np.where(absence > 0, np.maximum(np.ceil(v / np.where(absence > 0, absence, 1.0)), 1.0), np.inf)
    provable = visible & (proven <= largest)
    better = provable & (cost(np.where(provable, proven, 1.0)) < cost(less))
    batch = np.where(gain > tolerated, np.where(better, proven, less), batch)
    return batch, _gain(batch, visible, v, price, absence) > tolerated * (1.0 + 1e-9)


def _gain(batch: FloatArray, visible: np.ndarray, v: FloatArray, price: FloatArray, absence: FloatArray) -> FloatArray:
    """What a client gains by not computing: P D (1 − D Δ/v), or P D where pay does not depend on the loss."""
    lost = np.where(visible, np.minimum(batch * np.maximum(absence, 0.0) / v, 1.0), 0.0)
    return np.asarray(price * batch * np.maximum(1.0 - lost, 0.0))


def _stationary(stake: float, v: FloatArray, price: FloatArray, margin_rate: float) -> FloatArray:
    """The D with κ v/D² = P (1 + 2 z σ D/v), by bisection of log D; the left side falls, the right side rises."""
    highest = np.sqrt(stake * v / price)
    low, high = np.log(highest) - 60.0, np.log(highest)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        batch = np.exp(middle)
        above = price * (1.0 + 2.0 * margin_rate * batch / v) * np.square(batch) > stake * v
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.exp((low + high) / 2.0)


def _whole(cost: Callable[[FloatArray], FloatArray], batch: FloatArray) -> FloatArray:
    """The whole neighbour with the lower cost."""
    below = np.maximum(np.floor(batch), 1.0)
    return np.where(cost(below) <= cost(below + 1.0), below, below + 1.0)
