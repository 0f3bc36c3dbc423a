"""Softmax regression with an L2 penalty; its loss is smooth and strongly convex, as LCEME assumes.

Parameters: weights (classes, pixels), then biases (classes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.models.model import (
    Features,
    Labels,
    Params,
    mean_loss,
    predicted_classes,
    residuals,
    share_correct,
)

BLOCK = 4096


@dataclass(frozen=True)
class SoftmaxRegression:
    """f(w, ξ) = cross-entropy + (penalty/2)‖w‖².

    pixels  the number of a sample's features; of bytes, 255 stands for 1
    """

    pixels: int
    classes: int
    penalty: float = 0.0

    @property
    def size(self) -> int:
        return self.classes * (self.pixels + 1)

    def init(self, seed: int) -> Params:  # noqa: ARG002  (a convex loss has one minimum: start at 0)
        return np.zeros(self.size, dtype=np.float32)

    def scores(self, params: Params, features: Features) -> NDArray[np.float32]:
        return np.concatenate(self._scores_by_block(params, features))

    def loss(self, params: Params, features: Features, labels: Labels) -> float:
        return mean_loss(self._scores_by_block(params, features), labels, params, self.penalty)

    def accuracy(self, params: Params, features: Features, labels: Labels) -> float:
        return share_correct(self._scores_by_block(params, features), labels)

    def predict(self, params: Params, features: Features) -> Labels:
        return predicted_classes(self._scores_by_block(params, features))

    def weighted_gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        x = self.inputs(features)
        derivative = residuals(self.scores_of_inputs(params, x), labels, weight)
        gradient = np.empty(self.size, dtype=np.float32)
        np.matmul(derivative.T, x, out=gradient[: -self.classes].reshape(self.classes, self.pixels))
        gradient[-self.classes :] = derivative.sum(axis=0)
        if self.penalty:
            gradient += np.float32(self.penalty * weight.sum(dtype=np.float64)) * params
        return gradient

    def gradient_lengths(self, params: Params, features: Features, labels: Labels) -> Params:
        """The length of the gradient of each sample's cross-entropy, without the penalty."""
        x = self.inputs(features)
        derivative = residuals(self.scores_of_inputs(params, x), labels, np.ones(len(labels), dtype=np.float32))
        lengths: Params = np.sqrt(np.square(derivative).sum(axis=1) * (np.square(x).sum(axis=1) + np.float32(1.0)))
        return lengths

    def inputs(self, features: Features) -> NDArray[np.float32]:
        """One row per sample; bytes become numbers in [0, 1]."""
        rows = features.reshape(len(features), -1)
        return rows * np.float32(1.0 / 255.0) if rows.dtype == np.uint8 else rows.astype(np.float32, copy=False)

    def scores_of_inputs(self, params: Params, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The scores of images with these features."""
        weights = params[: -self.classes].reshape(self.classes, self.pixels)
        scores: NDArray[np.float32] = x @ weights.T + params[-self.classes :]
        return scores

    def _scores_by_block(self, params: Params, features: Features) -> list[NDArray[np.float32]]:
        return [
            self.scores_of_inputs(params, self.inputs(features[s : s + BLOCK])) for s in range(0, len(features), BLOCK)
        ]
