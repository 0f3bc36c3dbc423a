"""What a model is to the rest: a few functions on one flat array of parameters. Looks nowhere.

Whoever brings a model of her own writes these six; `adapters` makes them from a JAX function or a PyTorch module.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Params = NDArray[np.float32]
Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


class Model(Protocol):
    """Images are bytes, (n, height, width, channels); labels whole numbers from 0; parameters flat float32."""

    @property
    def size(self) -> int:
        """How many parameters."""

    def init(self, seed: int) -> Params:
        """Where training starts."""

    def loss(self, params: Params, images: Images, labels: Labels) -> float:
        """Mean loss f over these samples, penalty included."""

    def accuracy(self, params: Params, images: Images, labels: Labels) -> float:
        """Share of samples whose most likely class is the label."""

    def predict(self, params: Params, images: Images) -> Labels:
        """Each image's most likely class."""

    def weighted_gradient(self, params: Params, images: Images, labels: Labels, weight: Params) -> Params:
        """Σ_k weight_k ∇f(params, sample k)."""


def log_likely(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """Logarithms of the softmax of each row."""
    shifted: NDArray[np.float32] = scores - scores.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


def mean_loss(scores: list[NDArray[np.float32]], labels: Labels, params: Params, penalty: float) -> float:
    """Mean cross-entropy of blocks of scores, plus (penalty/2)‖params‖²."""
    likely = np.concatenate([log_likely(block) for block in scores])
    entropy = -float(np.mean(likely[np.arange(len(labels)), labels], dtype=np.float64))
    return entropy + 0.5 * penalty * float(np.square(params.astype(np.float64)).sum())


def share_right(scores: list[NDArray[np.float32]], labels: Labels) -> float:
    """How often the largest score is the label's."""
    return float(np.mean(likeliest(scores) == labels))


def likeliest(scores: list[NDArray[np.float32]]) -> Labels:
    """The class with the largest score of each row of blocks of scores; the first of those that are equal."""
    return np.concatenate([block.argmax(axis=1) for block in scores])


def residuals(scores: NDArray[np.float32], labels: Labels, weight: Params) -> NDArray[np.float32]:
    """The derivative of Σ weight_k · cross-entropy_k by the scores: weight · (softmax − label)."""
    result = np.exp(log_likely(scores))
    result[np.arange(len(labels)), labels] -= 1.0
    result *= weight[:, None]
    return result
