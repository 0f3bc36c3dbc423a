"""Solo models of several groups of clients, trained and tested over all cores in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.blas_threads import one_blas_thread
from truthfl.learning.elsewhere import Elsewhere, elsewhere, usual_threads
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
    other = elsewhere(threads)
    if other is not None:
        return _computed_by(other, model, groups, test, seed)

    def trained(work: tuple[Recipe, Samples]) -> Params:
        recipe, samples = work
        alone: Params = train_all_alone(model, [samples()], recipe, seed, classes=test.classes, threads=1)[0]
        return alone

    def tested(block: NDArray[np.float32]) -> NDArray[np.float64]:
        return solo_losses(model, block, test, seed, threads=1)

    workers = usual_threads() if threads is None else threads
    with one_blas_thread(), ThreadPoolExecutor(workers) as pool:
        models = pool.map(trained, [(recipe, samples) for recipe, members in groups for samples in members])
        sizes = [min(BLOCK, len(members) - k) for _, members in groups for k in range(0, len(members), BLOCK)]
        blocks = [np.stack([next(models) for _ in range(size)]) for size in sizes]
        losses = pool.map(tested, blocks)
        counts = [-(-len(members) // BLOCK) for _, members in groups]
        return [np.concatenate([next(losses) for _ in range(count)] or [np.empty(0)]) for count in counts]


def _computed_by(
    other: Elsewhere,
    model: Model,
    groups: Sequence[tuple[Recipe, Sequence[Samples]]],
    test: LabeledSamples,
    seed: int,
) -> list[NDArray[np.float64]]:
    """What `losses_of_groups` returns, in the same blocks of models, which are fitted together in the test."""
    blocks = [
        (recipe, [samples() for samples in members[first : first + BLOCK]])
        for recipe, members in groups
        for first in range(0, len(members), BLOCK)
    ]
    losses = iter(other("learning.solo_groups:block_losses", (model, test, seed), blocks))
    counts = [-(-len(members) // BLOCK) for _, members in groups]
    return [np.concatenate([next(losses)["loss"] for _ in range(count)] or [np.empty(0)]) for count in counts]


def block_losses(
    common: tuple[Model, LabeledSamples, int], own: tuple[Recipe, list[tuple[Features, Labels]]]
) -> Mapping[str, NDArray[Any]]:
    """The tested losses of the solo models of one block of clients."""
    (model, test, seed), (recipe, members) = common, own
    with one_blas_thread():
        models = train_all_alone(model, members, recipe, seed, classes=test.classes, threads=1)
        return {"loss": solo_losses(model, models, test, seed, threads=1)}
