"""Power laws y = a (n − offset)^k, fitted to means over draws, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from truthfl.mechanism.checks import FloatArray, IntArray

RESAMPLES = 1000
STEEPEST = 4.0  # exponents are searched from minus this to this
COARSE, FINER, REFINEMENTS = 81, 21, 4
LEAST_ERROR = 1e-9  # of a value, as a share of it; values that do not vary all have this one


@dataclass(frozen=True)
class PowerLaw:
    """y = factor · (n − offset)^exponent, with the 95% interval of the exponent."""

    factor: float
    exponent: float
    low: float
    high: float
    offset: float = 0.0

    def at(self, sizes: FloatArray) -> FloatArray:
        return np.asarray(self.factor * (np.asarray(sizes, dtype=float) - self.offset) ** self.exponent)

    @property
    def words(self) -> str:
        """The law with the interval of its exponent."""
        exponent, low, high = (f"{value:.2f}".replace("-", "−") for value in (self.exponent, self.low, self.high))
        return f"{f'(n − {self.offset:g})' if self.offset else 'n'}^{exponent} [{low}, {high}]"


def fit_power_law(
    sizes: Sequence[float], draws: int, values: Callable[[IntArray], FloatArray], *, offset: float = 0.0
) -> PowerLaw | None:
    """The law that fits best by least squares, in units of the values' own errors; None for fewer than three sizes.

    values  from numbers of draws (resamples, draws), with repetitions, to values (resamples, sizes). Of its results for
            resampled draws come the errors and the interval
    """
    if len(sizes) < 3:
        return None
    n = np.asarray(sizes, dtype=float) - offset
    own = values(np.arange(draws)[None])
    resampled = values(np.random.default_rng(0).integers(draws, size=(RESAMPLES, draws)))
    error = np.maximum(resampled.std(axis=0, ddof=1), LEAST_ERROR * np.abs(own[0]))
    factor, exponent = _fitted(n, own, error)
    _, exponents = _fitted(n, resampled, error)
    low, high = np.quantile(exponents, [0.025, 0.975])
    return PowerLaw(float(factor[0]), float(exponent[0]), float(low), float(high), offset)


def _fitted(n: FloatArray, values: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Factor and exponent of each row of `values`, (rows, sizes); for each exponent the best factor is known."""
    grid = np.broadcast_to(np.linspace(-STEEPEST, STEEPEST, COARSE), (len(values), COARSE))
    step = 2.0 * STEEPEST / (COARSE - 1)
    middle = np.sqrt(n.min() * n.max())
    for _ in range(1 + REFINEMENTS):
        shape = (n / middle) ** grid[..., None] / error
        scaled = (values / error)[:, None]
        factor = (shape * scaled).sum(axis=2) / np.square(shape).sum(axis=2)
        misfit = np.square(scaled - factor[..., None] * shape).sum(axis=2)
        best = misfit.argmin(axis=1)
        rows = np.arange(len(values))
        exponent, chosen = grid[rows, best], factor[rows, best]
        grid = exponent[:, None] + np.linspace(-step, step, FINER)
        step *= 2.0 / (FINER - 1)
    return np.asarray(chosen / middle**exponent), np.asarray(exponent)
