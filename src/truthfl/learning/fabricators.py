"""Functions that make reports without honest work, from received models and noise; see `behaviour.Fabricator`.

Imports nothing of truthfl at run time. NumPy is imported only when a report is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from truthfl.learning.model import Params

    Honest = Callable[[], Params]
    Noise = np.random.Generator

NOISE_OF_ECHO = 0.5  # length of the noise, as a share of the length of the echoed change


def echo(received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG001
    """w + (w − w'): the last change of the common model repeated; w itself if there is no earlier model."""
    return received[-1] + last_change(received)


def noisy_echo(received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG001
    """The echo plus noise in a random direction, half as long."""
    change = last_change(received)
    return received[-1] + change + direction(noise, change, NOISE_OF_ECHO * length(change))


def garbage(received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG001
    """A random direction, as long as the last change of the common model."""
    change = last_change(received)
    return received[-1] + direction(noise, change, length(change))


def last_bit(received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG001
    """The received model with the last bit of its first number changed."""
    import numpy as np

    report = received[-1].copy()
    report[0] = np.nextafter(report[0], np.inf, dtype=report.dtype)
    return report


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
