"""The calibration of a model: one factor of its scores, one bias per class, fitted on samples that nobody trained on.

Few labels make a model too sure or too timid, and unlike participants lend it their class frequencies. The calibration
mends both without touching what the model has learned. The joint model is published, tested and paid by with it.
docs/mechanism.md, section 8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.setting import FloatArray
from truthfl.errors import InputError
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.models.model import Features, Labels, Model, Params
from truthfl.learning.solo import fit_scores, log_probabilities, standardized

Scores = NDArray[np.floating[Any]]
MOST_SAMPLES = 4000  # to which a calibration is fitted
LARGEST = 1e100  # number in one


@dataclass(frozen=True)
class ScoreCalibration:
    """The calibrated scores are `factor` · scores + `biases`."""

    factor: float
    biases: tuple[float, ...]

    def log_probabilities(self, scores: Scores) -> FloatArray:
        """The logarithms of the classes' probabilities, (samples, classes)."""
        wide = scores[None].astype(np.float64)
        return np.asarray(log_probabilities(wide, np.array([self.factor]), np.array([self.biases]))[0])

    def loss_and_accuracy(self, scores: Scores, labels: Labels) -> tuple[float, float]:
        """Mean cross-entropy, and the share of samples whose most likely class is the label."""
        predicted = self.log_probabilities(scores).argmax(axis=1)
        return float(self.losses(scores, labels).mean()), float(np.mean(predicted == labels))

    def losses(self, scores: Scores, labels: Labels) -> FloatArray:
        """(samples,) The cross-entropy of each sample."""
        return np.asarray(-self.log_probabilities(scores)[np.arange(len(labels)), labels])

    def document(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {"factor": self.factor, "biases": list(self.biases)}


def calibration_of(document: object, classes: int) -> ScoreCalibration:
    """The calibration in an untrusted document, for a model with this many classes."""
    if isinstance(document, Mapping) and set(document) == {"factor", "biases"}:
        factor, biases = document["factor"], document["biases"]
        numbers: list[Any] = [factor, *biases] if isinstance(biases, list) and len(biases) == classes else [None]
        if all(type(one) in (int, float) and abs(one) <= LARGEST for one in numbers):
            return ScoreCalibration(float(factor), tuple(map(float, biases)))
    raise InputError("this is no calibration: it needs a factor and one bias per class, all of them numbers.")


def fit_calibration(model: Model, params: Params, samples: LabeledSamples) -> ScoreCalibration:
    """The calibration of this model with the least loss on these samples; at most `MOST_SAMPLES` are used."""
    chosen = np.linspace(0, len(samples) - 1, min(len(samples), MOST_SAMPLES)).astype(int)
    scores = model.scores(params, samples.features[chosen])
    return _fitted(scores[None].astype(np.float64), samples.labels[chosen])[0]


def cross_calibrated(model: Model, params: Scores, samples: LabeledSamples) -> tuple[FloatArray, FloatArray]:
    """Losses and accuracies of models (models, parameters), each calibrated on one half of the samples for the other.

    For pilots, whose models have seen the pilot data.
    """
    found = np.zeros((2, len(params)))
    scores, labels = _scores_of(model, params, samples.features), samples.labels
    for half in (0, 1):
        own = labels[1 - half :: 2]
        for number, calibration in enumerate(_fitted(scores[:, half::2], labels[half::2])):
            found[:, number] += np.array(calibration.loss_and_accuracy(scores[number, 1 - half :: 2], own)) * len(own)
    return found[0] / len(labels), found[1] / len(labels)


def _scores_of(model: Model, params: Scores, features: Features) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.stack([model.scores(one, features) for one in params]).astype(np.float64)


def _fitted(scores: Scores, labels: Labels) -> list[ScoreCalibration]:
    """The calibrations of models with these scores, (models, samples, classes)."""
    wide, deviation = standardized(scores.astype(np.float64))
    factors, biases = fit_scores(wide, labels)
    return [
        ScoreCalibration(float(factor / own), tuple(bias.tolist()))
        for factor, own, bias in zip(factors, deviation, biases, strict=True)
    ]
