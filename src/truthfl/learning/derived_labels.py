"""Labels that a client derives from the samples she labeled by hand, once, before training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.behaviour import Unlabeled
from truthfl.learning.blas_threads import one_blas_thread
from truthfl.learning.model import Features, Labels, Model

MOST_DISTANCES = 1 << 22  # computed at a time


def derived_labels(
    unlabeled: Unlabeled,
    model: Model,
    features: Features,
    labels: Labels,
    by_hand: NDArray[np.bool_],
    *,
    rounds: int,
    step_size: float,
    seed: int,
) -> Labels:
    """One client's labels; those of samples not in the mask `by_hand` are derived from the others, as `unlabeled` says.

    labels             of all her samples; only those made by hand are read
    rounds, step_size  of the job: the number of steps of a model of her own, and their size
    """
    known, own, others = features[by_hand], labels[by_hand], features[~by_hand]
    result = labels.copy()
    if not len(others):
        return result
    if unlabeled is Unlabeled.NEAREST:
        result[~by_hand] = nearest_labels(known, own, others)
    elif unlabeled is Unlabeled.OWN_MODEL:
        result[~by_hand] = own_model_labels(model, known, own, others, steps=rounds, step_size=step_size, seed=seed)
    return result


def nearest_labels(known: Features, labels: Labels, others: Features) -> Labels:
    """For each of `others` the label of the nearest known sample by squared Euclidean distance; in a tie the first.

    Of bytes, distances are whole numbers, which float64 holds exactly.
    """
    here = known.reshape(len(known), -1).astype(np.float64)
    there = others.reshape(len(others), here.shape[1])
    norm = np.square(here).sum(axis=1)
    nearest = np.empty(len(there), dtype=np.int64)
    block = max(1, MOST_DISTANCES // len(here))
    for first in range(0, len(there), block):
        part = there[first : first + block].astype(np.float64)
        nearest[first : first + block] = (norm - 2.0 * (part @ here.T)).argmin(axis=1)
    return labels[nearest]


def own_model_labels(
    model: Model, known: Features, labels: Labels, others: Features, *, steps: int, step_size: float, seed: int
) -> Labels:
    """The classes that the model predicts after `steps` steps of full-batch gradient descent on the known samples.

    A model that diverges still predicts something, which is taken.
    """
    params = model.init(seed).copy()
    weight = np.full(len(known), 1.0 / len(known), dtype=np.float32)
    with np.errstate(all="ignore"), one_blas_thread():
        for _ in range(steps):
            params -= np.float32(step_size) * model.weighted_gradient(params, known, labels, weight)
        return model.predict(params, others)
