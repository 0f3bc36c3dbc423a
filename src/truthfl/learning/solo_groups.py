"""Solo models of several groups of clients, trained and tested over all cores in one call.

Imports `blas_threads`, `labeled_samples`, `model`, `recipe`, `solo_test` and `solo_training`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.blas_threads import one_blas_thread
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.model import Features, Labels, Model, Params
from truthfl.learning.recipe import Recipe
from truthfl.learning.solo_test import BLOCK, solo_losses
from truthfl.learning.solo_training import train_all_alone

Samples = Callable[[], tuple[Features, Labels]]
"""Returns a client's samples; called when her model is trained."""


def losses_of_groups(
    model: Model,
    groups: Sequence[tuple[Recipe, Sequence[Samples]]],
    test: LabeledSamples,
    seed: int,
    *,
    threads: int | None = None,
) -> list[NDArray[np.float64]]:
    """The tested losses of the solo models of each group: of clients who train by the same recipe."""

    def trained(work: tuple[Recipe, Samples]) -> Params:
        recipe, samples = work
        alone: Params = train_all_alone(model, [samples()], recipe, seed, classes=test.classes, threads=1)[0]
        return alone

    def tested(block: NDArray[np.float32]) -> NDArray[np.float64]:
        return solo_losses(model, block, test, seed, threads=1)

    workers = min(os.cpu_count() or 1, 64) if threads is None else threads
    with one_blas_thread(), ThreadPoolExecutor(workers) as pool:
        models = pool.map(trained, [(recipe, samples) for recipe, members in groups for samples in members])
        sizes = [min(BLOCK, len(members) - k) for _, members in groups for k in range(0, len(members), BLOCK)]
        blocks = [np.stack([next(models) for _ in range(size)]) for size in sizes]
        losses = pool.map(tested, blocks)
        counts = [-(-len(members) // BLOCK) for _, members in groups]
        return [np.concatenate([next(losses) for _ in range(count)] or [np.empty(0)]) for count in counts]
