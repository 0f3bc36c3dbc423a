"""A figure as data: panels, series, and how sure each point is. A plot and a table are made of this and nothing else.

Looks at `errors` only.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from truthfl.errors import InputError

CONFIDENCE = 0.95
HEADER = ("panel", "series", "x", "mean", "low", "high")


def mean_interval(samples: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean over the first axis and the ends of its 95% confidence interval, by Student's t.

    Samples that are not finite make the mean what it is and the interval unbounded.
    """
    values = np.asarray(samples, dtype=float)
    count = len(values)
    if count < 2:
        raise InputError(f"there are {count} samples; an interval needs at least 2.")
    with np.errstate(invalid="ignore"):
        mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    reach = np.asarray(stdtrit(count - 1, 0.5 + CONFIDENCE / 2) * spread / np.sqrt(count))
    known = np.isfinite(mean) & np.isfinite(reach)
    near, reach = np.where(known, mean, 0.0), np.where(known, reach, np.inf)
    return mean, near - reach, near + reach


def series(name: str, x: ArrayLike, samples: ArrayLike) -> Series:
    """A series of means over seeds: `samples` has one row per seed, one column per x."""
    mean, low, high = mean_interval(samples)
    return Series(name, _numbers(x), _numbers(mean), _numbers(low), _numbers(high))


def exact_series(name: str, x: ArrayLike, y: ArrayLike) -> Series:
    """A series that was computed, not sampled: its band has no width."""
    return Series(name, _numbers(x), _numbers(y), _numbers(y), _numbers(y))


def figure_csv(figure: Figure) -> str:
    """All points of a figure as CSV; numbers in full."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for panel in figure.panels:
        for line in panel.series:
            writer.writerows(
                (panel.title, line.name, *map(repr, point))
                for point in zip(line.x, line.mean, line.low, line.high, strict=True)
            )
    return out.getvalue()


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
        if len({len(part) for part in (self.x, self.mean, self.low, self.high)}) != 1 or not self.x:
            raise InputError(f"series {self.name!r} is empty, or its x, mean, low and high differ in length.")

    @property
    def has_band(self) -> bool:
        """Whether there is any doubt to show."""
        return any(high > low for low, high in zip(self.low, self.high, strict=True))


@dataclass(frozen=True)
class Panel:
    """One pair of axes. Labels carry their units.

    level   a horizontal line to compare with, such as 0
    mark_x  a vertical line, such as at what was asked for
    log_y   whether equal factors are equally far apart
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
    """A figure of the paper, made again: the number it has there, and what was run for it."""

    number: int
    title: str
    caption: str
    panels: Sequence[Panel]
