"""The data of a figure: panels, series, and the confidence interval of each point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from truthfl.errors import InputError
from truthfl.texts import csv_text

CONFIDENCE = 0.95
HEADER = ("panel", "series", "x", "mean", "low", "high")


def mean_interval(samples: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean over the first axis, and the ends of its 95% confidence interval by Student's t.

    If samples are not finite, the interval is unbounded.
    """
    values = np.asarray(samples, dtype=float)
    count = len(values)
    if count < 2:
        raise InputError(f"there are {count} samples; an interval needs at least 2.")
    with np.errstate(invalid="ignore"):
        mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    half_width = np.asarray(stdtrit(count - 1, 0.5 + CONFIDENCE / 2) * spread / np.sqrt(count))
    finite = np.isfinite(mean) & np.isfinite(half_width)
    center, half_width = np.where(finite, mean, 0.0), np.where(finite, half_width, np.inf)
    return mean, center - half_width, center + half_width


def series(name: str, x: ArrayLike, samples: ArrayLike) -> Series:
    """A series of means over seeds: `samples` has one row per seed, one column per x."""
    mean, low, high = mean_interval(samples)
    return Series(name, _numbers(x), _numbers(mean), _numbers(low), _numbers(high))


def exact_series(name: str, x: ArrayLike, y: ArrayLike) -> Series:
    """A series without uncertainty: its interval has no width."""
    return Series(name, _numbers(x), _numbers(y), _numbers(y), _numbers(y))


def figure_csv(figure: Figure) -> str:
    """All points of a figure as CSV, with all digits."""
    rows: list[Sequence[object]] = [HEADER]
    for panel in figure.panels:
        for line in panel.series:
            points = zip(line.x, line.mean, line.low, line.high, strict=True)
            rows += [(panel.title, line.name, *point) for point in points]
    return csv_text(rows)


def _numbers(values: ArrayLike) -> tuple[float, ...]:
    return tuple(np.asarray(values, dtype=float).ravel().tolist())


@dataclass(frozen=True)
class Series:
    """One line of a panel: a mean at each x, and the 95% confidence interval of that mean."""

    name: str
    x: Sequence[float]
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    def __post_init__(self) -> None:
        if len({len(column) for column in (self.x, self.mean, self.low, self.high)}) != 1 or not self.x:
            raise InputError(f"series {self.name!r} is empty, or its x, mean, low and high differ in length.")

    @property
    def has_band(self) -> bool:
        """Whether an interval has a width."""
        return any(high > low for low, high in zip(self.low, self.high, strict=True))


@dataclass(frozen=True)
class Panel:
    """One pair of axes. Labels include units.

    level   a horizontal reference line, such as 0
    mark_x  a vertical reference line, such as the assigned batch size
    log_y   whether the y axis is logarithmic
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    level: float | None = None
    mark_x: float | None = None
    log_y: bool = False


@dataclass(frozen=True)
class Figure:
    """A reproduced figure of the paper; `number` is the paper's."""

    number: int
    title: str
    caption: str
    panels: Sequence[Panel]
