"""`Cut`: labels of one draw, cut into equal parts for so many clients.

A draw is a random order of the pool. The first labels of it are used for every number of clients, so that federations
of all sizes have the same labels in all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from truthfl.adversary.split import Split
from truthfl.errors import InputError
from truthfl.learning.federated import Federated
from truthfl.learning.federations import Data, ModelChoice
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.model import Model
from truthfl.learning.partition import Partition
from truthfl.learning.sample_sets import SampleSets, sample_sets
from truthfl.learning.task_choice import PICTURES
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.setting import Training

MORE_LABELS = 0.5  # further samples that a client could label, as a share of hers


@dataclass(frozen=True, eq=False)
class Cut:
    """The federation of equal clients on one draw, with further samples of the pool that nobody holds.

    batches  (N,) assigned batches
    """

    split: Split
    batches: FloatArray

    @property
    def federated(self) -> Federated:
        return self.split.federated

    @property
    def test(self) -> LabeledSamples:
        return self.split.test


def pool_size(data: Data, total_labels: int) -> int:
    """The number of samples of the pool; `InputError` if it has too few for so many labels and some more."""
    size, needed = len(_sets(data).clients), round(1.2 * total_labels)
    if size < needed:
        raise InputError(
            f"{data.source} has {size:,} samples beside the test set; {total_labels:,} labels of all clients and some "
            f"that nobody holds need {needed:,}."
        )
    return size


def pool_and_test(data: Data, model: ModelChoice) -> tuple[LabeledSamples, LabeledSamples, Model]:
    """The samples to label, the test set, and the model."""
    sets = _sets(data)
    return sets.clients, sets.test, model.for_samples(sets.clients, sets.task)


def cut(
    *,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    total_labels: int,
    batch_of_all: int,
    rounds: int,
    step_size: float,
    size: int,
    draw: int,
) -> Cut:
    """The federation of `size` clients on this draw."""
    pool, test, network = pool_and_test(Data(**data), ModelChoice(**model))
    order = np.random.default_rng([int(data["seed"]), draw]).permutation(len(pool))
    labels = total_labels // size
    spare = min(max(round(MORE_LABELS * labels), 1), len(pool) - total_labels)
    federated = Federated(
        network,
        pool.take(order[: total_labels + spare]),
        Partition(np.arange(total_labels), labels * np.arange(size + 1)),
        Training(rounds, 1, step_size),
        participation=min(batch_of_all / size, 1.0),
    )
    further = total_labels + np.arange(spare)
    return Cut(Split(federated, test, (further,) * size), np.full(size, float(max(batch_of_all // size, 1))))


@lru_cache(maxsize=2)
def _sets(data: Data) -> SampleSets:
    return sample_sets(PICTURES, data.source, data.pilot_samples, data.test_samples, data.seed)
