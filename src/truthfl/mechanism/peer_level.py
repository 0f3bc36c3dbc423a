"""The level of solo losses that is expected of a client, corrected by the solo losses of the other clients.

Whatever all clients have in common (their data are less alike than the pilot's, the test set is hard) moves all solo
losses. The others tell by how much; a client's own loss has no part in her own level, so nobody moves it by what she
does. docs/mechanism.md, section 8. Imports `checks`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from truthfl.mechanism.checks import FloatArray, IntArray

MOST_SHIFT = 6.0  # standard deviations
GATE_DEVIATIONS = 5.0  # 3.72 would do for a normal excess to be larger once in 10,000; that of solo losses has a tail


def peer_shifts(excess: ArrayLike) -> FloatArray:
    """The shift of each client's expected solo loss, in standard deviations.

    excess  (N,) (solo loss − pilot's level) / spread of each client; NaN where there is no solo loss

    Of the other clients and the pilot, which counts as one more client with an excess of 0, those are left out whose
    excess is more than `GATE_DEVIATIONS` above the median; the shift is the mean of the rest, at most `MOST_SHIFT` up
    or down, so that even a majority that does not label at all does not pass.
    """
    own = np.asarray(excess, dtype=float)
    present = np.isfinite(own)
    ordered = np.sort(np.append(own[present], 0.0))
    rank = np.searchsorted(ordered, np.where(present, own, np.inf))  # of equal values the first: they are the same
    count = len(ordered) - present
    median = (_without(ordered, rank, (count - 1) // 2) + _without(ordered, rank, count // 2)) / 2.0
    kept = np.searchsorted(ordered, median + GATE_DEVIATIONS, side="right")
    total = np.concatenate(([0.0], np.cumsum(ordered)))[kept]
    counted = present & (rank < kept)
    mean = (total - np.where(counted, np.where(present, own, 0.0), 0.0)) / np.maximum(kept - counted, 1)
    return np.asarray(np.clip(mean, -MOST_SHIFT, MOST_SHIFT))


def _without(ordered: FloatArray, removed: IntArray, position: IntArray) -> FloatArray:
    """The value at this position of the ordered values without the one at `removed`."""
    return np.asarray(ordered[np.minimum(position + (position >= removed), len(ordered) - 1)])
