"""Models that clients train alone: what a contract expects of them, and what is observed. docs/mechanism.md, section 8.

Some effects move all solo losses: the clients' data may be less alike than the pilot's, or the test set may be hard.
The median of the others shows by how much; clients far from it do not count. A client's own loss does not affect their
own level. No single loss, however high or low, moves another client's level beyond the losses next to the middle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.contracts.setting import FloatArray

SOLO_TERMS = ("solo_level", "solo_spread", "gate")
SOLO_DROPPING_OUT = (
    "A participant who sends no audition in time, or one whose loss is more than the gate above its level, takes no "
    "part in the joint training and is paid by the formula with no report taken. A model that is nearly the joint "
    "model, or a solo model, of an earlier job of the same task has no solo loss. A model whose loss is more than the "
    "gate below its level is shown to the operator, who may refuse it by a signed command within audition_seconds; "
    "then it has no solo loss either."
)


@dataclass(frozen=True, eq=False)
class SoloStage:
    """What a contract expects of the models that clients train alone, (clients,) each.

    level   expected test loss of an honest client's model
    spread  standard deviation of that loss between honest clients
    gate    a client takes part in the joint training if their loss is at most this much above its level; if it is more
            than this below, the operator decides
    """

    level: FloatArray
    spread: FloatArray
    gate: FloatArray


@dataclass(frozen=True)
class SoloResult:
    """How the models did that clients trained alone; fields broadcast to (…, N), as those of `Observation`.

    loss         test loss of the client's model; NaN if there is none
    level_shift  shift of the expected loss by the others' losses, in standard deviations: `peer_shifts`
    """

    loss: ArrayLike
    level_shift: ArrayLike = 0.0


MOST_SHIFT = 6.0  # standard deviations
GATE_DEVIATIONS = 5.0  # far beyond honest work, though solo losses have a longer tail than normal ones
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
