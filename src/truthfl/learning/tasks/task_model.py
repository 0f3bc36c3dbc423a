"""`TaskModel`: the model of a task that computes it by four methods of its own; a check of models of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.labeled_samples import LabeledSamples, read_only
from truthfl.learning.model import Features, Labels, Model, Params, mean_loss, predicted_classes, share_correct
from truthfl.learning.task import Task
from truthfl.mechanism.checks import number, whole_number

Floats = NDArray[np.float32]
BLOCK = 4096  # samples per call
CHECKED, DIRECTIONS, STEP = 256, 8, 0.05  # of the check of gradients: samples, directions, their length
LARGEST_ERROR = 0.3  # of slopes by the gradient, as a share of those that losses show


@dataclass(frozen=True)
class TaskModel:
    """The model whose scores and gradients the task computes, with (penalty/2)‖w‖² added.

    task     has the methods size, start, scores and gradient
    shape    of one sample's features
    penalty  factor of the L2 penalty, which the task's own gradient leaves out
    """

    task: Task
    shape: tuple[int, ...]
    penalty: float = 0.0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        number(f"{self._name}'s penalty", self.penalty, at_least=0.0)
        object.__setattr__(self, "size", whole_number(f"{self._name}'s size", self._own.size(self.shape), at_least=1))

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.task.classes)

    def init(self, seed: int) -> Params:
        start = self._flat(self._own.start(self.shape, seed), "start")
        if not np.isfinite(start).all():
            raise InputError(f"{self._name}'s start is not finite, at parameter {_first_not(np.isfinite(start))}.")
        return start

    def scores(self, params: Params, features: Features) -> Floats:
        return np.concatenate(list(self._blocks_of_scores(params, features)))

    def loss(self, params: Params, features: Features, labels: Labels) -> float:
        return mean_loss(list(self._blocks_of_scores(params, features)), labels, params, self.penalty)

    def accuracy(self, params: Params, features: Features, labels: Labels) -> float:
        return share_correct(list(self._blocks_of_scores(params, features)), labels)

    def predict(self, params: Params, features: Features) -> Labels:
        return predicted_classes(list(self._blocks_of_scores(params, features)))

    def weighted_gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        total = np.zeros(self.size, dtype=np.float32)
        for block in _blocks(len(features)):
            x = inputs(features[block])
            total += self._flat(self._own.gradient(read_only(params), x, labels[block], weight[block]), "gradient")
        if self.penalty:
            total += np.float32(self.penalty * weight.sum(dtype=np.float64)) * params
        return total

    @property
    def _own(self) -> Any:
        return self.task

    @property
    def _name(self) -> str:
        return type(self.task).__name__

    def _blocks_of_scores(self, params: Params, features: Features) -> Iterator[Floats]:
        for block in _blocks(len(features)):
            x = inputs(features[block])
            scores, expected = np.asarray(self._own.scores(read_only(params), x)), (len(x), self.classes)
            if scores.shape != expected:
                raise InputError(
                    f"{self._name}'s scores have shape {scores.shape}; it must be {expected}: one row per sample, one "
                    "column per class."
                )
            yield _numbers(scores, f"{self._name}'s scores")

    def _flat(self, given: Any, what: str) -> Params:
        flat = np.asarray(given)
        if flat.size != self.size:
            raise InputError(f"{self._name}'s {what} has {flat.size} numbers; the model has {self.size}.")
        return _numbers(flat, f"{self._name}'s {what}").reshape(-1)


def inputs(features: Features) -> Floats:
    """The features as float32; bytes become numbers in [0, 1]."""
    if features.dtype == np.uint8:
        return features * np.float32(1.0 / 255.0)
    return features.astype(np.float32, copy=False)


def require_trainable(model: Model, samples: LabeledSamples, name: str) -> None:
    """Raise `InputError` unless scores at the start are finite, and the gradient is that of the loss.

    name  of the task whose model it is
    """
    features, labels, start = samples.features[:CHECKED], samples.labels[:CHECKED], model.init(0)
    if start.shape != (model.size,):
        raise InputError(f"{name}'s start has shape {start.shape}; the model has {model.size} parameters.")
    scores = model.scores(start, features)
    if scores.shape != (len(features), len(samples.classes)):
        raise InputError(
            f"{name}'s scores have shape {scores.shape}; it must be {(len(features), len(samples.classes))}: one row "
            "per sample, one column per class."
        )
    finite = np.isfinite(scores).all(axis=1)
    if not finite.all():
        raise InputError(f"{name}'s scores are not finite at the start, at sample {_first_not(finite)}.")
    weight = np.full(len(labels), 1.0 / len(labels), dtype=np.float32)
    gradient = model.weighted_gradient(start, features, labels, weight)
    if not np.isfinite(gradient).all():
        place = _first_not(np.isfinite(gradient))
        raise InputError(f"{name}'s gradient is not finite at the start, at parameter {place}.")
    drawn = np.random.default_rng(0).normal(size=(DIRECTIONS, model.size))
    directions = (STEP / np.linalg.norm(drawn, axis=1, keepdims=True) * drawn).astype(np.float32)
    rises = [
        0.5 * (model.loss(start + one, features, labels) - model.loss(start - one, features, labels))
        for one in directions
    ]
    told = directions @ gradient
    measured, error = np.linalg.norm(rises), np.linalg.norm(told - rises)
    if max(float(measured), float(np.linalg.norm(told))) > 1e-6 and error > LARGEST_ERROR * measured:
        raise InputError(
            f"{name}'s gradient is not that of the loss of its scores: in {DIRECTIONS} small steps it tells changes "
            f"of the loss that are wrong by {100 * error / max(float(measured), 1e-12):.0f}%. It must be the sum over "
            "samples of weight times the gradient of the cross-entropy."
        )


def _first_not(right: NDArray[np.bool_] | np.bool_) -> int:
    return int(np.argmin(right))


def _numbers(array: NDArray[Any], what: str) -> Floats:
    if array.dtype.kind not in "fiub":
        raise InputError(f"{what} have type {array.dtype}; they must be numbers.")
    return array.astype(np.float32, copy=False)


def _blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, count, BLOCK))
