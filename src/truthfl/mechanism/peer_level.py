"""The level of solo losses that is expected of a client, corrected by the solo losses of the other clients.

Whatever all clients have in common (their data are less alike than the pilot's, the test set is hard) moves all solo
losses. The median of the others tells by how much, without those who are far from it. A client's own loss has no part
in their own level, and no single loss, however high or low, moves another's level beyond the losses next to the middle.
docs/mechanism.md, section 8.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from truthfl.mechanism.checks import FloatArray

MOST_SHIFT = 6.0  # standard deviations
GATE_DEVIATIONS = 5.0  # 3.72 would do for a normal excess to be larger once in 10,000; that of solo losses has a tail
FEWEST = 3  # other clients and the pilot, of whom a median does not follow one


def peer_shifts(excess: ArrayLike) -> FloatArray:
    """The shift of each client's expected solo loss, in standard deviations.

    excess  (N,) (solo loss − pilot's level) / spread of each client; NaN where there is no solo loss

    The shift is the median of the other clients and of the pilot, which counts as one more client with an excess of 0.
    Who is more than `GATE_DEVIATIONS` away from a first median, above or below, has no part in it; of two values in the
    middle, the first median is the one nearer the pilot. The shift is at most `MOST_SHIFT` up or down, so that even a
    majority that does not label at all does not pass. Of two clients, each would follow the other: there the pilot
    decides alone.
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
    """For each of `own`, the two values in the middle, or twice the one, of the sorted `values` without it.

    Where it is beyond the values, or NaN, it is none of them.
    """
    others = len(values) - 1
    inside = (values[0] <= own) & (own <= values[-1])
    low, high = (
        np.where(inside, np.where(own <= values[place], values[min(place + 1, others)], values[place]), values[whole])
        for place, whole in (((others - 1) // 2, others // 2), (others // 2, (others + 1) // 2))
    )
    return low, high


def level_variance(clients: int) -> float:
    """Variance of a client's level among so many, over that of one solo loss: of a median of normal values.

    The pilot counts as one client, so the median is of `clients` values: exact for 1, 2% too small for 3, nearly exact
    for more odd numbers, and too large for even ones. In a job of two the pilot's own level stands, the mean of
    at least three clients.
    """
    return math.pi / (2.0 * clients + math.pi - 2.0)
