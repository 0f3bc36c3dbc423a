"""The level of solo losses that is expected of a client, corrected by the solo losses of the other clients.

Whatever all clients have in common (their data are less alike than the pilot's, the test set is hard) moves all solo
losses. The others tell by how much; a client's own loss has no part in her own level, so nobody moves it by what she
does. docs/mechanism.md, section 8. Imports `blocks` and `checks`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from truthfl.mechanism.blocks import in_blocks
from truthfl.mechanism.checks import FloatArray

MOST_SHIFT = 6.0  # standard deviations
GATE_DEVIATIONS = 5.0  # 3.72 would do for a normal excess to be larger once in 10,000; that of solo losses has a tail


def peer_shifts(excess: ArrayLike) -> FloatArray:
    """The shift of each client's expected solo loss, in standard deviations.

    excess  (N,) (solo loss − pilot's level) / spread of each client; NaN where there is no solo loss

    Of the other clients and the pilot, which counts as one more client with an excess of 0, those are left out whose
    excess is more than `GATE_DEVIATIONS` above the median; the shift is the mean of the rest, at most `MOST_SHIFT` up
    or down, so that even a majority that does not label at all does not pass.

    The median of the others is one of three for those who have a solo loss, and one for all who have none: which of
    them, one or two comparisons of her own excess with the middle of all tell.
    """
    own = np.asarray(excess, dtype=float)
    present = np.isfinite(own)
    ordered = np.sort(np.append(own[present], 0.0))
    last = len(ordered) - 1
    lower, upper = (last - 1) // 2, last // 2  # the middle of one fewer than all
    low, high = float(ordered[max(lower, 0)]), float(ordered[upper])
    next_low, next_high = (float(ordered[min(place + 1, last)]) for place in (max(lower, 0), upper))
    of_all = float(ordered[last // 2] + ordered[(last + 1) // 2]) / 2.0
    medians = np.array([(low + high) / 2.0, (low + next_high) / 2.0, (next_low + next_high) / 2.0, of_all])
    kept = np.searchsorted(ordered, medians + GATE_DEVIATIONS, side="right")
    total = np.concatenate(([0.0], np.cumsum(ordered)))[kept]
    highest = ordered[np.maximum(kept - 1, 0)]  # the highest excess that is not left out

    def shift(own: FloatArray, present: np.ndarray) -> FloatArray:
        case = np.where(present, (own <= high).astype(np.int8) + (own <= low), 3)
        counted = present & (kept[case] > 0) & (own <= highest[case])
        mean = (total[case] - np.where(counted, own, 0.0)) / np.maximum(kept[case] - counted, 1)
        return np.asarray(np.clip(mean, -MOST_SHIFT, MOST_SHIFT))

    return np.asarray(in_blocks(shift, own, present))
