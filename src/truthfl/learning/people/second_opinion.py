"""A model's opinion on labels: the probability of each class, and a quick model trained on the labels themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.models.model import Features, Labels, Model, Params, log_softmax
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.solo import Recipe, train_all_alone

FEWEST_LABELS = 50  # for a quick model
PARTS = 4
LEAD = 0.1  # over always naming the most frequent class, as a share of the samples; below this, no opinion
RECIPE = Recipe(steps=400, batch_size=32, step_size=4.0, penalty=1e-3, shifts=0)
BLOCK = 1024
MOST_DOUBTED, SHARE_DOUBTED = 10, 0.1

Probabilities = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Opinion:
    """A model's opinion on some samples.

    positions      of these samples, among all
    probabilities  of each class, (samples, classes)
    handed_in      whether it is the model of the audition, which later labels do not change
    """

    positions: Sequence[int]
    probabilities: Probabilities
    handed_in: bool


@dataclass(frozen=True)
class Doubt:
    """A label with which a model disagrees.

    chance  the probability that the model gives to the label
    """

    position: int
    label: int
    predicted: int
    chance: float


OpinionSource = Callable[[Sequence[int], Sequence[str]], Opinion | None]  # of labels by position, -1 for none; classes


def doubts(opinion: Opinion, labels: Sequence[int]) -> list[Doubt]:
    """Labels with which the model disagrees, the least probable first; at most a tenth of all labels."""
    found = []
    for position, row in zip(opinion.positions, opinion.probabilities, strict=True):
        label, predicted = labels[position], int(row.argmax())
        if label not in (-1, predicted):
            found.append(Doubt(position, label, predicted, float(row[label])))
    labeled = sum(labels[position] >= 0 for position in opinion.positions)
    found.sort(key=lambda doubt: (doubt.chance, doubt.position))
    return found[: max(MOST_DOUBTED, round(SHARE_DOUBTED * labeled))]


def class_probabilities(model: Model, params: Params, features: Features) -> Probabilities:
    """The probability of each class, (samples, classes)."""
    blocks = [features[start : start + BLOCK] for start in range(0, len(features), BLOCK)]
    return np.concatenate([np.exp(log_softmax(model.scores(params, block))) for block in blocks])


def cross_probabilities(features: Features, labels: Labels, classes: Sequence[str]) -> Probabilities | None:
    """Probabilities by quick models; each sample's comes from a model trained on the others.

    None if there are too few labels, or if the models do not learn enough to be useful.
    """
    if len(labels) < FEWEST_LABELS:
        return None
    inputs = _standardized(features)
    model = SoftmaxRegression(inputs.shape[1], len(classes), RECIPE.penalty)
    part = np.random.default_rng(0).permutation(len(labels)) % PARTS
    others = [(inputs[part != number], labels[part != number]) for number in range(PARTS)]
    probabilities = np.empty((len(labels), len(classes)), dtype=np.float32)
    for number, params in enumerate(train_all_alone(model, others, RECIPE, 0, classes=classes, threads=1)):
        probabilities[part == number] = class_probabilities(model, params, inputs[part == number])
    right = float((probabilities.argmax(axis=1) == labels).mean())
    return probabilities if right >= np.bincount(labels).max() / len(labels) + LEAD else None


def _standardized(features: Features) -> NDArray[np.float32]:
    """(samples, features), each feature with mean 0, and samples with a length of about 1."""
    flat = features.reshape(len(features), -1).astype(np.float32)
    flat -= flat.mean(axis=0)
    spread = flat.std(axis=0)
    flat /= np.where(spread > 1e-3 * spread.max(initial=1e-9), spread, np.inf)
    result: NDArray[np.float32] = flat / np.float32(np.sqrt(flat.shape[1]))
    return result
