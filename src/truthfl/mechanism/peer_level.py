"""The level of solo losses that is expected of a client, corrected by the solo losses of the other clients.

Whatever all clients have in common (their data are less alike than the pilot's, the test set is hard) moves all solo
losses. The others tell by how much; a client's own loss has no part in her own level, so nobody moves it by what she
does. docs/mechanism.md, section 8. Imports `blocks` and `checks`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from truthfl.mechanism.blocks import in_blocks
from truthfl.mechanism.checks import FloatArray, IntArray

MOST_SHIFT = 6.0  # standard deviations
GATE_DEVIATIONS = 5.0  # 3.72 would do for a normal excess to be larger once in 10,000; that of solo losses has a tail

SORTED_UP_TO = 1 << 16  # solo losses; more are not sorted, and their sum is in another order


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
    known = np.zeros(int(present.sum()) + 1)  # the pilot's is the last one
    known[:-1] = own[present]
    last = len(known) - 1
    lower, upper = max((last - 1) // 2, 0), last // 2  # the middle of one fewer than all
    places = np.array([lower, lower + 1, upper, upper + 1, (last + 1) // 2])
    np.minimum(places, last, out=places)
    if len(known) < SORTED_UP_TO:
        known.sort()
    else:
        known.partition(np.unique(places))
    low, next_low, high, next_high, above = known[places].tolist()
    medians = np.array([low + high, low + next_high, next_low + next_high, high + above]) / 2.0
    limits = medians + GATE_DEVIATIONS
    kept, total = _counts_and_sums(known, limits)

    def shift(own: FloatArray, present: np.ndarray) -> FloatArray:
        case = (own <= high).astype(np.intp)
        case += own <= low
        if not present.all():
            case[~present] = 3
        counted = present & (own <= limits[case])
        mean = total[case]
        mean -= np.where(counted, own, 0.0)
        mean /= np.maximum(kept[case] - counted, 1)
        return np.asarray(np.clip(mean, -MOST_SHIFT, MOST_SHIFT))

    return np.asarray(in_blocks(shift, own, present))


def _counts_and_sums(known: FloatArray, limits: FloatArray) -> tuple[IntArray, FloatArray]:
    """How many values are at or below each limit, and their sums, from the lowest value on if they are sorted."""
    if len(known) < SORTED_UP_TO:
        kept = np.searchsorted(known, limits, side="right")
        return kept, np.concatenate(([0.0], np.cumsum(known)))[kept]
    within = known <= limits.min()
    tail = np.sort(known[~within])
    more = np.searchsorted(tail, limits, side="right")
    sums = known.sum(where=within) + np.concatenate(([0.0], np.cumsum(tail)))[more]
    return int(within.sum()) + more, sums
