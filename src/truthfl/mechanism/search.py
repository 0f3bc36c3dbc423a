"""A grid search for every client's best deviation, which evaluates payoffs and uses no closed form.

For each labeling effort and each claim: a coarse grid over batch size (in its logarithm) and report scale, then finer
and finer grids around the best point; for all clients at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.strategies import Strategies

Gain = Callable[[float, FloatArray, FloatArray, FloatArray], FloatArray]
"""(labeling effort, batch sizes, report scales, claimed batch sizes) → gain of each client over honest work."""

COARSE_BATCHES = 33
COARSE_SCALES = 21  # of u = γ/(1+γ) in [0, 1): γ = 1 is in the middle
LARGEST_SCALE = 99.0
FINE = 7
ZOOMS = 22
SHRINK = 0.45
VALUES_AT_ONCE = 1 << 21


def search_best(
    gain: Gain, lowest: FloatArray, highest: FloatArray, honest: FloatArray, claims: Sequence[FloatArray]
) -> tuple[FloatArray, Strategies]:
    """The largest gain found for each client, at least 0 (honest work itself), and the strategy it is found at."""
    count = len(lowest)
    best = np.zeros(count)
    effort, batch, scale, claim = np.ones(count), honest.copy(), np.ones(count), honest.copy()
    for labels in (0.0, 1.0):
        for claimed in claims:
            gains, at_batch, at_scale = _search_plane(gain, labels, claimed, lowest, highest)
            better = gains > best
            best[better], effort[better] = gains[better], labels
            batch[better], scale[better], claim[better] = at_batch[better], at_scale[better], claimed[better]
    return best, Strategies(effort, batch, scale, claim)


def _search_plane(
    gain: Gain, labels: float, claimed: FloatArray, lowest: FloatArray, highest: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    bottom, height = np.log(lowest), np.log(highest) - np.log(lowest)
    right = LARGEST_SCALE / (1.0 + LARGEST_SCALE)
    x, u = np.zeros(len(lowest)), np.full(len(lowest), 0.5)
    best = np.full(len(lowest), -np.inf)

    def visit(offsets: FloatArray, centre_x: FloatArray, centre_u: FloatArray) -> None:
        rows = max(1, VALUES_AT_ONCE // len(lowest))
        for start in range(0, len(offsets), rows):
            block = offsets[start : start + rows]
            xs = np.clip(centre_x + block[:, :1], 0.0, 1.0)
            us = np.clip(centre_u + block[:, 1:], 0.0, right)
            batch = np.clip(np.exp(bottom + xs * height), lowest, highest)
            values = gain(labels, batch, us / (1.0 - us), claimed)
            row = np.argmax(values, axis=0)
            value = np.take_along_axis(values, row[None], axis=0)[0]
            better = value > best
            best[better] = value[better]
            x[better] = np.take_along_axis(xs, row[None], axis=0)[0][better]
            u[better] = np.take_along_axis(np.broadcast_to(us, values.shape), row[None], axis=0)[0][better]

    batches = np.linspace(0.0, 1.0, COARSE_BATCHES)
    scales = np.arange(COARSE_SCALES) / (COARSE_SCALES - 1)
    visit(_points(batches, scales), np.zeros_like(x), np.zeros_like(u))
    steps = np.linspace(-1.0, 1.0, FINE)
    width = 1.0
    for _ in range(ZOOMS):
        visit(
            _points(steps * width / (COARSE_BATCHES - 1), steps * width / (COARSE_SCALES - 1)),
            x.copy(),
            u.copy(),
        )
        width *= SHRINK
    return best, np.clip(np.exp(bottom + x * height), lowest, highest), u / (1.0 - u)


def _points(first: FloatArray, second: FloatArray) -> FloatArray:
    return np.stack(np.meshgrid(first, second, indexing="ij"), axis=-1).reshape(-1, 2)
