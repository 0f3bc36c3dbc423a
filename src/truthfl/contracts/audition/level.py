"""`SoloCurve`: the expected solo loss of a client by the number of labels, measured on pilot clients.

Slopes are local differences, so no shape of the curve is assumed, but that it falls. docs/mechanism.md, section 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from truthfl.contracts.setting import FloatArray
from truthfl.contracts.solo import level_variance
from truthfl.errors import InputError

FEWEST_CLIENTS = 3
WINDOW = 1.35  # a slope at n is a difference between n / WINDOW and n · WINDOW, as far as the curve reaches


@dataclass(frozen=True, eq=False)
class SoloCurve:
    """Losses of pilot clients, each of whom labels more and more of their own samples.

    labels  (K,) numbers of labels, rising
    loss    (clients, K) losses; a row has one client's samples, each time with more of them
    turn    how many clients next to each other share no samples; spreads are measured within turns. None: all
    """

    labels: FloatArray
    loss: FloatArray
    turn: int | None = None

    def __post_init__(self) -> None:
        labels, loss = np.asarray(self.labels, dtype=float), np.asarray(self.loss, dtype=float)
        if labels.ndim != 1 or len(labels) < 2 or not (np.diff(labels) > 0).all() or labels[0] < 1:
            raise InputError("a solo curve needs at least two numbers of labels, rising, from 1 on.")
        if loss.ndim != 2 or loss.shape[1] != len(labels) or not np.isfinite(loss).all():
            raise InputError("a solo curve needs one row of finite losses for each pilot client.")
        if len(loss) < FEWEST_CLIENTS:
            raise InputError(f"a solo curve needs {FEWEST_CLIENTS} or more clients.")
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "loss", loss)

    @property
    def clients(self) -> int:
        """The number of pilot clients."""
        return len(self.loss)

    @cached_property
    def freedom(self) -> int:
        """Degrees of freedom of the spread: clients minus turns."""
        return sum(len(part) - 1 for part in self._turns)

    @cached_property
    def _turns(self) -> list[FloatArray]:
        """The losses by turn; what is left of the last turn joins the one before if it is a single client."""
        size = min(max(self.turn or self.clients, 2), self.clients)
        starts = list(range(size, self.clients, size))
        if starts and self.clients - starts[-1] < 2:
            starts.pop()
        return np.split(self.loss, starts)

    @cached_property
    def _residuals(self) -> FloatArray:
        """(clients, K) Losses less the mean of their turn, scaled so that their mean square is the variance."""
        parts = [(part - part.mean(axis=0)) * np.sqrt(len(part) / (len(part) - 1)) for part in self._turns]
        return np.concatenate(parts)

    @cached_property
    def _means(self) -> FloatArray:
        """(K,) The mean losses, made to fall: neighbours that rise are replaced by their mean."""
        values: list[float] = []
        counts: list[int] = []
        for mean in self.loss.mean(axis=0).tolist():
            values.append(mean)
            counts.append(1)
            while len(values) > 1 and values[-1] > values[-2]:
                last, number = values.pop(), counts.pop()
                values[-1] = (values[-1] * counts[-1] + last * number) / (counts[-1] + number)
                counts[-1] += number
        return np.repeat(values, counts)

    @cached_property
    def _spread(self) -> tuple[float, float]:
        """s(n) = e^a n^b: a and b, fitted to the spreads at all numbers, so that none is small by chance."""
        spread = np.maximum(np.sqrt(np.square(self._residuals).mean(axis=0)), 1e-12)
        slope, constant = np.polyfit(np.log(self.labels), np.log(spread), 1)
        return float(constant), float(slope)

    @cached_property
    def skewness(self) -> float:
        """The skewness of losses around their level, 0 if it is negative; over all numbers together."""
        scaled = self._residuals / np.maximum(np.sqrt(np.square(self._residuals).mean(axis=0)), 1e-12)
        return max(float((scaled**3).mean()), 0.0)

    def level(self, labels: ArrayLike) -> FloatArray:
        """φ(n): the mean loss with n labels."""
        return np.asarray(self._interpolated(self._means[None], labels)[0])

    def spread(self, labels: ArrayLike) -> FloatArray:
        """s(n): the standard deviation of the loss between clients with n labels; as at the ends beyond them."""
        constant, slope = self._spread
        n = np.clip(np.asarray(labels, dtype=float), self.labels[0], self.labels[-1])
        return np.asarray(np.exp(constant + slope * np.log(n)))

    def slope(self, labels: ArrayLike) -> FloatArray:
        """b(n) = −n φ'(n): by how much the loss falls per unit of log n."""
        return np.asarray(self._falls(self._means[None], labels)[0])

    def slope_error(self, labels: ArrayLike) -> FloatArray:
        """The standard error of b(n)."""
        return np.asarray(self._falls(self.loss, labels).std(axis=0, ddof=1) / np.sqrt(self.clients))

    def risk(self, labels: ArrayLike, clients: int) -> FloatArray:
        """The standard deviation of label pay over label cost, in a job of this many clients: of loss and level."""
        slope = self.slope(labels)
        deviation = self.spread(labels) * np.sqrt(1.0 + level_variance(clients))
        with np.errstate(divide="ignore"):
            return np.asarray(np.where(slope > 0, deviation / slope, np.inf))

    def _falls(self, losses: FloatArray, labels: ArrayLike) -> FloatArray:
        """(…) By how much these losses (rows, K) fall per unit of log n around n."""
        n = np.asarray(labels, dtype=float)
        low = np.maximum(n / WINDOW, self.labels[0])
        high = np.minimum(n * WINDOW, self.labels[-1])
        low, high = np.minimum(low, self.labels[-1] / WINDOW), np.maximum(high, self.labels[0] * WINDOW)
        return np.asarray((self._interpolated(losses, low) - self._interpolated(losses, high)) / np.log(high / low))

    def _interpolated(self, losses: FloatArray, labels: ArrayLike) -> FloatArray:
        """(rows, …) losses at these numbers of labels, interpolated linearly in log n; constant beyond the ends."""
        x = np.log(np.clip(np.asarray(labels, dtype=float), self.labels[0], self.labels[-1]))
        knots = np.log(self.labels)
        right = np.clip(np.searchsorted(knots, x, side="right"), 1, len(knots) - 1)
        share = (x - knots[right - 1]) / (knots[right] - knots[right - 1])
        left, above = losses[:, right - 1], losses[:, right]
        between = left * (1.0 - share) + above * share
        return np.asarray(np.where(share == 0.0, left, np.where(share == 1.0, above, between)))
