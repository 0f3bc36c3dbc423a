"""`Model`: the interface of models, functions of one flat array of parameters; helper functions for their losses.

`adapters` turns a JAX function or a PyTorch module into a model.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Params = NDArray[np.float32]
Features = NDArray[np.uint8 | np.float32]  # of bytes, 255 stands for 1
Images = NDArray[np.uint8]  # (n, height, width, channels)
Labels = NDArray[np.int64]


class Model(Protocol):
    """A model. Features are (n, …), bytes or float32, labels integers from 0, parameters flat float32."""

    @property
    def size(self) -> int:
        """The number of parameters."""

    def init(self, seed: int) -> Params:
        """The initial parameters."""

    def scores(self, params: Params, features: Features) -> NDArray[np.float32]:
        """The scores (logits) of all classes, (n, classes)."""

    def loss(self, params: Params, features: Features, labels: Labels) -> float:
        """Mean loss f over these samples, penalty included."""

    def accuracy(self, params: Params, features: Features, labels: Labels) -> float:
        """Share of samples whose most likely class is the label."""

    def predict(self, params: Params, features: Features) -> Labels:
        """Each sample's most likely class."""

    def weighted_gradient(self, params: Params, features: Features, labels: Labels, weight: Params) -> Params:
        """Σ_k weight_k ∇f(params, sample k)."""


def log_softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """The logarithm of the softmax of each row."""
    shifted: NDArray[np.float32] = scores - scores.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


def mean_loss(scores: list[NDArray[np.float32]], labels: Labels, params: Params, penalty: float) -> float:
    """Mean cross-entropy of blocks of scores, plus (penalty/2)‖params‖²."""
    log_probabilities = np.concatenate([log_softmax(block) for block in scores])
    entropy = -float(np.mean(log_probabilities[np.arange(len(labels)), labels], dtype=np.float64))
    return entropy + 0.5 * penalty * float(np.square(params.astype(np.float64)).sum())


def share_correct(scores: list[NDArray[np.float32]], labels: Labels) -> float:
    """The share of rows whose largest score is the label's."""
    return float(np.mean(predicted_classes(scores) == labels))


def predicted_classes(scores: list[NDArray[np.float32]]) -> Labels:
    """The class with the largest score in each row of blocks of scores; in a tie the first."""
    return np.concatenate([block.argmax(axis=1) for block in scores])


def residuals(scores: NDArray[np.float32], labels: Labels, weight: Params) -> NDArray[np.float32]:
    """The derivative of Σ weight_k · cross-entropy_k by the scores: weight · (softmax − label)."""
    result = np.exp(log_softmax(scores))
    result[np.arange(len(labels)), labels] -= 1.0
    result *= weight[:, None]
    return result
