"""The level of solo losses that is expected of a client, corrected by the solo losses of the other clients.

Whatever all clients have in common (their data are less alike than the pilot's, the test set is hard) moves all solo
losses. The median of the others tells by how much. A client's own loss has no part in their own level, and no single
loss, however high or low, moves another's level beyond the losses next to the middle. docs/mechanism.md, section 8.
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
    It is at most `MOST_SHIFT` up or down, so that even a majority that does not label at all does not pass. Of two,
    each would follow the other: there the pilot decides alone.
    """
    own = np.clip(np.asarray(excess, dtype=float), -MOST_SHIFT, MOST_SHIFT)
    absent = np.isnan(own)
    known = np.sort(np.append(own[~absent], 0.0))
    others = len(known) - 1  # of who has a solo loss, with the pilot
    shifts: FloatArray = np.zeros_like(own)
    if others >= FEWEST:
        low, high = (
            np.where(own <= known[place], known[place + 1], known[place]) for place in ((others - 1) // 2, others // 2)
        )
        shifts = (low + high) / 2.0
    if absent.any():
        shifts[absent] = np.median(known) if len(known) >= FEWEST else 0.0
    return shifts


def level_variance(clients: int) -> float:
    """Variance of a client's level among so many, over that of one solo loss: of a median of normal values.

    The pilot counts as one client, so the median is of `clients` values: exact for 1, 2% too small for 3, nearly exact
    for more odd numbers, and too large for even ones. In a job of two the pilot's own level stands, the mean of
    at least three clients.
    """
    return math.pi / (2.0 * clients + math.pi - 2.0)
