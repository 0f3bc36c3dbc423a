"""`SoloCurve`: the test loss of a model that one client trains alone, by the number of samples that she labels.

Measured on pilot clients of the server's own. Slopes are local differences, so no shape of the curve is assumed.
docs/mechanism.md, section 8. Imports `checks`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray

WINDOW = 1.35  # a slope at n is a difference between n / WINDOW and n · WINDOW, as far as the curve reaches


@dataclass(frozen=True, eq=False)
class SoloCurve:
    """Losses of pilot clients, each of whom labels more and more of her own samples.

    labels  (K,) numbers of labels, rising
    loss    (clients, K) losses; a client's row is of the same samples and further ones
    """

    labels: FloatArray
    loss: FloatArray

    def __post_init__(self) -> None:
        labels, loss = np.asarray(self.labels, dtype=float), np.asarray(self.loss, dtype=float)
        if labels.ndim != 1 or len(labels) < 2 or not (np.diff(labels) > 0).all() or labels[0] < 1:
            raise InputError("a solo curve needs at least two numbers of labels, rising, from 1 on.")
        if loss.ndim != 2 or loss.shape[1] != len(labels) or len(loss) < 3 or not np.isfinite(loss).all():
            raise InputError(
                "a solo curve needs finite losses of at least three pilot clients at each number of labels."
            )
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "loss", loss)

    @property
    def clients(self) -> int:
        """The number of pilot clients."""
        return len(self.loss)

    def level(self, labels: ArrayLike) -> FloatArray:
        """φ(n): the mean loss with n labels."""
        return np.asarray(self._at(labels).mean(axis=0))

    def spread(self, labels: ArrayLike) -> FloatArray:
        """The standard deviation of the loss between clients with n labels."""
        return np.asarray(self._at(labels).std(axis=0, ddof=1))

    def slope(self, labels: ArrayLike) -> FloatArray:
        """b(n) = −n φ'(n): by how much the loss falls per unit of log n."""
        return np.asarray(self._slopes(labels).mean(axis=0))

    def slope_error(self, labels: ArrayLike) -> FloatArray:
        """The standard error of b(n)."""
        slopes = self._slopes(labels)
        return np.asarray(slopes.std(axis=0, ddof=1) / np.sqrt(len(slopes)))

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
        return np.asarray(self.loss[:, right - 1] * (1.0 - share) + self.loss[:, right] * share)
