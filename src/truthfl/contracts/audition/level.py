"""The expected solo loss of a client by the number of labels, measured on the server's pilot clients.

Slopes are local differences, so no shape of the curve is assumed. docs/mechanism.md, section 8.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.contracts.setting import FloatArray
from truthfl.errors import InputError

FEWEST_CLIENTS = 3
WINDOW = 1.35  # a slope at n is a difference between n / WINDOW and n · WINDOW, as far as the curve reaches


@dataclass(frozen=True, eq=False)
class SoloCurve:
    """Losses of pilot clients, each of whom labels more and more of their own samples.

    labels  (K,) numbers of labels, rising
    loss    (clients, K) losses; a row has one client's samples, each time with more of them; NaN where not measured
    """

    labels: FloatArray
    loss: FloatArray

    def __post_init__(self) -> None:
        labels, loss = np.asarray(self.labels, dtype=float), np.asarray(self.loss, dtype=float)
        if labels.ndim != 1 or len(labels) < 2 or not (np.diff(labels) > 0).all() or labels[0] < 1:
            raise InputError("a solo curve needs at least two numbers of labels, rising, from 1 on.")
        if loss.ndim != 2 or loss.shape[1] != len(labels) or np.isinf(loss).any():
            raise InputError("a solo curve needs one row of finite losses for each pilot client.")
        if (np.isfinite(loss).sum(axis=0) < FEWEST_CLIENTS).any():
            raise InputError(f"a solo curve needs {FEWEST_CLIENTS} or more clients at each number of labels.")
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "loss", loss)

    @property
    def clients(self) -> int:
        """The smallest number of pilot clients whose loss is known, over the numbers of labels."""
        return int(np.isfinite(self.loss).sum(axis=0).min())

    def level(self, labels: ArrayLike) -> FloatArray:
        """φ(n): the mean loss with n labels.

        The clients measured at all numbers give the shape. The height comes from all clients, where there are more.
        """
        complete = np.isfinite(self.loss).all(axis=1)
        if complete.all() or not complete.any():
            return np.asarray(np.nanmean(self._at(labels), axis=0))
        of_all = np.isfinite(self.loss).all(axis=0)
        height = float(self.loss[:, of_all].mean() - self.loss[complete][:, of_all].mean()) if of_all.any() else 0.0
        return np.asarray(self._at(labels)[complete].mean(axis=0) + height)

    def spread(self, labels: ArrayLike) -> FloatArray:
        """The standard deviation of the loss between clients with n labels."""
        return np.asarray(np.nanstd(self._at(labels), axis=0, ddof=1))

    def slope(self, labels: ArrayLike) -> FloatArray:
        """b(n) = −n φ'(n): by how much the loss falls per unit of log n."""
        return np.asarray(np.nanmean(self._slopes(labels), axis=0))

    def slope_error(self, labels: ArrayLike) -> FloatArray:
        """The standard error of b(n)."""
        slopes = self._slopes(labels)
        return np.asarray(np.nanstd(slopes, axis=0, ddof=1) / np.sqrt(np.isfinite(slopes).sum(axis=0)))

    def _slopes(self, labels: ArrayLike) -> FloatArray:
        n = np.asarray(labels, dtype=float)
        low = np.maximum(n / WINDOW, self.labels[0])
        high = np.minimum(n * WINDOW, self.labels[-1])
        low, high = np.minimum(low, self.labels[-1] / WINDOW), np.maximum(high, self.labels[0] * WINDOW)
        return np.asarray((self._at(low) - self._at(high)) / np.log(high / low))

    def _at(self, labels: ArrayLike) -> FloatArray:
        """(clients, …) losses at these numbers of labels, interpolated linearly in log n; constant beyond the ends."""
        x = np.log(np.clip(np.asarray(labels, dtype=float), self.labels[0], self.labels[-1]))
        knots = np.log(self.labels)
        right = np.clip(np.searchsorted(knots, x, side="right"), 1, len(knots) - 1)
        share = (x - knots[right - 1]) / (knots[right] - knots[right - 1])
        left, above = self.loss[:, right - 1], self.loss[:, right]
        between = left * (1.0 - share) + above * share
        return np.asarray(np.where(share == 0.0, left, np.where(share == 1.0, above, between)))
