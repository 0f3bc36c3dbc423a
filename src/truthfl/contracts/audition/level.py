"""The expected solo loss of a client: by the number of labels, corrected by the solo losses of the others.

Measured on the server's pilot clients. Slopes are local differences, so no shape of the curve is assumed.
docs/mechanism.md, section 8.

Some effects move all solo losses: the clients' data may be less alike than the pilot's, or the test set may be hard.
The median of the others shows by how much; clients far from it do not count. A client's own loss does not affect their
own level. No single loss, however high or low, moves another client's level beyond the losses next to the middle.
docs/mechanism.md, section 8.
"""

from __future__ import annotations

import math
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


MOST_SHIFT = 6.0  # standard deviations
GATE_DEVIATIONS = 5.0  # 3.72 would do for a normal excess to be larger once in 10,000; solo losses have a tail
FEWEST = 3  # values, one of them the pilot's, whose median does not follow a single one


def peer_shifts(excess: ArrayLike) -> FloatArray:
    """The shift of each client's expected solo loss, in standard deviations.

    excess  (N,) (solo loss − pilot's level) / spread of each client; NaN where there is no solo loss

    The shift is the median of the other clients and of the pilot. The pilot counts as one more client with an excess
    of 0. A client more than `GATE_DEVIATIONS` away from a first median, above or below, does not count. If two values
    are in the middle, the first median is the one nearer the pilot. The shift is at most `MOST_SHIFT` up or down, so
    even a majority that does not label at all fails. With two clients, each would follow the other, so there the
    pilot alone decides.
    """
    own = np.asarray(excess, dtype=float)
    absent = np.isnan(own)
    known = np.sort(np.append(own[~absent], 0.0))
    shifts = np.zeros_like(own)
    if len(known) >= FEWEST:
        low, high = _middle_without(own, known)
        first = np.where(np.abs(low) <= np.abs(high), low, high)
        for center in np.unique(first):
            of_it = first == center
            fewest, most = np.searchsorted(known, center - GATE_DEVIATIONS), center + GATE_DEVIATIONS
            low, high = _middle_without(own[of_it], known[fewest : np.searchsorted(known, most, side="right")])
            shifts[of_it] = (low + high) / 2.0
    if len(known) <= FEWEST:
        shifts[~absent] = 0.0
    np.clip(shifts, -MOST_SHIFT, MOST_SHIFT, out=shifts)
    return shifts


def _middle_without(own: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """For each of `own`: the two middle values (or the one middle value twice) of the sorted `values` without it.

    If it lies beyond the values, or is NaN, nothing is removed.
    """
    others = len(values) - 1
    inside = (values[0] <= own) & (own <= values[-1])
    low, high = (
        np.where(inside, np.where(own <= values[place], values[min(place + 1, others)], values[place]), values[whole])
        for place, whole in (((others - 1) // 2, others // 2), (others // 2, (others + 1) // 2))
    )
    return low, high


def level_variance(clients: int) -> float:
    """Variance of the level from this many clients, relative to one solo loss: of a median of normal values.

    The pilot counts as one client, so this is the median of `clients` values. It is exact for 1, 2% too small for 3,
    nearly exact for larger odd numbers, and too large for even ones. In a job with two clients the pilot's own level
    stands, which is the mean of at least three clients.
    """
    return math.pi / (2.0 * clients + math.pi - 2.0)
