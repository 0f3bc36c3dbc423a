"""The virtual cost of a client whose sample cost is private, from the distribution of that cost.

docs/mechanism.md, section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray

GRID = 4001
PANELS = 256
REGULARITY_TOLERANCE = 1e-9


class CostDistribution(Protocol):
    """The methods that are used of a frozen continuous SciPy distribution."""

    def support(self) -> tuple[float, float]: ...
    def cdf(self, x: FloatArray) -> FloatArray: ...
    def pdf(self, x: FloatArray) -> FloatArray: ...


class VirtualCost:
    """ψ(c) = c + F(c)/f(c) on the support [lowest, highest], checked to be regular: ψ(c)/c never falls."""

    def __init__(self, distribution: CostDistribution) -> None:
        for method in ("support", "cdf", "pdf"):
            if not callable(getattr(distribution, method, None)):
                raise InputError(
                    f"the cost distribution {type(distribution).__name__} has no {method}; "
                    "give a frozen continuous SciPy distribution such as scipy.stats.uniform(0.5, 1.5)."
                )
        self.distribution = distribution
        self.lowest, self.highest = (float(end) for end in distribution.support())
        if not (np.isfinite(self.highest) and self.lowest >= 0.0 and self.lowest < self.highest):
            raise InputError(
                f"the cost distribution lies on [{self.lowest:g}, {self.highest:g}]; it must lie on a bounded "
                "interval of costs from 0 up, for the highest cost decides what every other is paid."
            )
        self._require_regular()
        self._nodes, self._weights = np.polynomial.legendre.leggauss(16)
        self._starts = np.linspace(0.0, np.sqrt(self.highest - self.lowest), PANELS + 1)
        pieces = self._panel(self._starts[:-1], self._starts[1:])
        self._sums = np.concatenate(([0.0], np.cumsum(pieces)))

    def __call__(self, cost: FloatArray) -> FloatArray:
        """ψ at each cost."""
        below = np.asarray(self.distribution.cdf(cost), dtype=float)
        density = np.asarray(self.distribution.pdf(cost), dtype=float)
        with np.errstate(divide="ignore", invalid="ignore"):
            hazard = np.where(below > 0.0, below / density, 0.0)
        return cost + hazard

    def integral_of_inverse_root(self, start: FloatArray, end: FloatArray) -> FloatArray:
        """∫ ψ(z)^{−1/2} dz from start to end; 0 where end is not above start."""
        return np.where(end > start, self._from_lowest(end) - self._from_lowest(start), 0.0)

    def crossing(self, ratio: FloatArray) -> FloatArray:
        """The largest cost in the support at which ψ(c)/c is not above the ratio; the lowest cost where none is."""
        low, high = np.full_like(ratio, self.lowest), np.full_like(ratio, self.highest)
        return bisect(lambda cost: self(cost) <= ratio * cost, low, high)

    def _from_lowest(self, cost: FloatArray) -> FloatArray:
        root = np.sqrt(np.clip(cost - self.lowest, 0.0, None))
        panel = np.clip(np.searchsorted(self._starts, root, side="right") - 1, 0, PANELS - 1)
        return self._sums[panel] + self._panel(self._starts[panel], root)

    def _panel(self, start: FloatArray, end: FloatArray) -> FloatArray:
        """Gauss quadrature in s = √(z − lowest), in which the integrand is smooth even at cost 0."""
        half = (end - start) / 2.0
        s = (start + end)[..., None] / 2.0 + half[..., None] * self._nodes
        cost = self.lowest + s**2
        psi = self(np.minimum(cost, self.highest))
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.where(s > 0.0, 2.0 * s / np.sqrt(psi), 0.0)
        return np.asarray((inside * self._weights).sum(axis=-1) * half)

    def _require_regular(self) -> None:
        inner = np.linspace(self.lowest, self.highest, GRID)
        near = np.geomspace(1e-6, 1e-3, 25) * (self.highest - self.lowest)
        cost = np.sort(np.concatenate((inner[1:], self.lowest + near, self.highest - near)))
        ratio = self(cost) / cost
        falls = ratio[1:] < ratio[:-1] * (1.0 - REGULARITY_TOLERANCE)
        falls |= np.isnan(ratio[1:]) | (np.isinf(ratio[:-1]) & np.isfinite(ratio[1:]))
        if falls.any():
            where = int(np.argmax(falls))
            raise InputError(
                "the cost distribution is not regular: virtual cost over cost, (c + F(c)/f(c))/c, falls from "
                f"{ratio[where]:.6g} at c = {cost[where]:.6g} to {ratio[where + 1]:.6g} at c = {cost[where + 1]:.6g}; "
                "it must never fall, as for a uniform distribution."
            )


def bisect(holds: Callable[[FloatArray], NDArray[np.bool_]], low: FloatArray, high: FloatArray) -> FloatArray:
    """The largest value in [low, high] at which a condition holds that is monotone; low if it never holds."""
    reaches = holds(high)
    low, high = low.copy(), high.copy()
    low[reaches] = high[reaches]
    for _ in range(200):
        middle = 0.5 * (low + high)
        if ((middle <= low) | (middle >= high)).all():
            break
        good = holds(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return low
