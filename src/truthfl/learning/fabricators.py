"""Makers of reports without honest work, from received models and noise; see `behaviour.Fabricator`.

NumPy is imported only when a report is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from truthfl.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from truthfl.learning.model import Params

    Honest = Callable[[], Params]
    Noise = np.random.Generator


def last_change(received: Sequence[Params]) -> Params:
    """The difference between the last two received models; 0 if there is only one."""
    return received[-1] - received[-2 if len(received) > 1 else -1]


def length(change: Params) -> float:
    """‖change‖."""
    wide = change.astype("float64")
    return math.sqrt((wide * wide).sum())


def direction(noise: Noise, like: Params, size: float) -> Params:
    """A vector of length `size` in a uniformly random direction, with the shape and type of `like`."""
    drawn = noise.standard_normal(like.shape)
    drawn *= size / math.sqrt((drawn * drawn).sum())
    return drawn.astype(like.dtype)


def finite_report(received: Params, made: Callable[[], Params]) -> Params:
    """The report that `made` returns, but for numbers that are not finite: these stay as they were received.

    A report that grows from round to round would otherwise end the training that it spoils.
    """
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        report = made()
        return report if np.isfinite(report).all() else np.where(np.isfinite(report), report, received)


def _require_sizes(fabricator: Echo | Garbage) -> None:
    """Raise `InputError` unless all its fields are finite and at least 0."""
    for field, value in vars(fabricator).items():
        if not (math.isfinite(value) and value >= 0):
            kind = type(fabricator).__name__
            raise InputError(f"{field} of {kind} is {value:g}; it must be a finite number, at least 0.")


@dataclass(frozen=True)
class Echo:
    """w + factor·(w − w'): the last change of the common model repeated, with noise; w if there is no earlier model.

    factor  of the change
    noise   length of noise in a random direction, as a share of the length of the reported change
    """

    factor: float = 1.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        _require_sizes(self)

    def __call__(self, received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG002
        def made() -> Params:
            change = last_change(received)
            echoed = received[-1] + change.dtype.type(self.factor) * change
            if self.noise == 0:
                return echoed
            return echoed + direction(noise, change, self.noise * self.factor * length(change))

        return finite_report(received[-1], made)


@dataclass(frozen=True)
class Garbage:
    """A change in a random direction.

    length  as a multiple of the length of the common model's last change
    """

    length: float = 1.0

    def __post_init__(self) -> None:
        _require_sizes(self)

    def __call__(self, received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG002
        def made() -> Params:
            change = last_change(received)
            return received[-1] + direction(noise, change, self.length * length(change))

        return finite_report(received[-1], made)


@dataclass(frozen=True)
class LastBit:
    """The received model with the last bit of its first number changed."""

    def __call__(self, received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG002
        import numpy as np

        report = received[-1].copy()
        report[0] = np.nextafter(report[0], np.inf, dtype=report.dtype)
        return report
