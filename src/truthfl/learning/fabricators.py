"""How reports are made without honest work, from the models received and from noise. See `behaviour.Fabricator`.

Loads NumPy when a report is made. Imports nothing of truthfl.
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

NOISE_OF_ECHO = 0.5  # length of the noise, as a share of the echo's


def echo(received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG001
    """w + (w − w'): the last change of the common model once more; w itself where no change was seen yet."""
    return received[-1] + last_change(received)


def noisy_echo(received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG001
    """The echo, and noise in a random direction that is half as long."""
    change = last_change(received)
    return received[-1] + change + direction(noise, change, NOISE_OF_ECHO * length(change))


def garbage(received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG001
    """A random direction, as long as the last change of the common model."""
    change = last_change(received)
    return received[-1] + direction(noise, change, length(change))


def last_bit(received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG001
    """The model as it came, but for the last bit of its first number."""
    import numpy as np

    report = received[-1].copy()
    report[0] = np.nextafter(report[0], np.inf, dtype=report.dtype)
    return report


def last_change(received: Sequence[Params]) -> Params:
    """From the last model but one to the last; 0 where there is one only."""
    return received[-1] - received[-2 if len(received) > 1 else -1]


def length(change: Params) -> float:
    """‖change‖."""
    wide = change.astype("float64")
    return math.sqrt((wide * wide).sum())


def direction(noise: Noise, like: Params, long: float) -> Params:
    """A vector of this length in a random direction, every direction as likely as every other."""
    drawn = noise.standard_normal(like.shape)
    drawn *= long / math.sqrt((drawn * drawn).sum())
    return drawn.astype(like.dtype)
