"""What is exactly known of softmax regression: its optimum, its smoothness, the variance of its gradients.

All of it in float64, on the features of given images. Looks at `softmax`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize

from truthfl.errors import InputError
from truthfl.learning.model import Images, Labels
from truthfl.learning.softmax import SoftmaxRegression

Floats = NDArray[np.float64]
GOOD_ENOUGH = 1e-6
TYPICAL_CURVATURE = 0.1  # of the softmax, between 0 and ½


@dataclass(frozen=True, eq=False)
class Optimum:
    """Where the loss is least. It is within `certainty` of the true minimum: ‖∇F‖²/(2μ), by strong convexity."""

    params: Floats
    loss: float
    certainty: float


def features(model: SoftmaxRegression, images: Images) -> Floats:
    """Pixels in [0, 1], and a 1 for the bias."""
    x = images.reshape(len(images), -1).astype(np.float64) / 255.0
    if x.shape[1] != model.pixels:
        raise InputError(f"images have {x.shape[1]} pixels; the model is for {model.pixels}.")
    return np.concatenate((x, np.ones((len(x), 1))), axis=1)


def as_matrix(model: SoftmaxRegression, params: NDArray[np.floating]) -> Floats:
    """(classes, pixels + 1) from the flat parameters, biases last."""
    weights = params[: -model.classes].reshape(model.classes, model.pixels)
    return np.concatenate((weights, params[-model.classes :, None]), axis=1).astype(np.float64)


def as_params(matrix: Floats) -> Floats:
    """And back."""
    return np.concatenate((matrix[:, :-1].ravel(), matrix[:, -1]))


def likely(matrix: Floats, x: Floats) -> Floats:
    """The model's probabilities."""
    scores = x @ matrix.T
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def find_optimum(model: SoftmaxRegression, x: Floats, labels: Labels, weight: Floats) -> Optimum:
    """w* and F* of Σ weight · f; weights sum to 1. Raises where the penalty is 0: then there need not be an optimum.

    L-BFGS in coordinates along the data's principal directions, each stretched by about its curvature, where the
    valley is nearly round. What is orthogonal to all samples is 0 at the optimum.
    """
    if model.penalty <= 0:
        raise InputError("penalty is 0; softmax regression needs a positive one to have a strongly convex loss.")
    rows = np.arange(len(labels))
    size, directions = _principal(x * np.sqrt(weight)[:, None])
    stretch = np.sqrt(TYPICAL_CURVATURE * size + model.penalty)
    turned = x @ directions.T / stretch
    keep = model.penalty / np.square(stretch)
    latest = [stretch]  # the latest gradient

    def loss_and_gradient(flat: Floats) -> tuple[float, Floats]:
        matrix = flat.reshape(model.classes, -1)
        p = likely(matrix, turned)
        penalty = 0.5 * float((np.square(matrix) * keep).sum())
        loss = -float(weight @ np.log(np.maximum(p[rows, labels], 1e-300))) + penalty
        p[rows, labels] -= 1.0
        p *= weight[:, None]
        latest[0] = (p.T @ turned + keep * matrix).ravel()
        return loss, latest[0]

    def certainty(gradient: Floats) -> float:
        return float(np.square(gradient.reshape(model.classes, -1) * stretch).sum()) / (2.0 * model.penalty)

    def stop_when_sure(_flat: Floats) -> None:
        if certainty(latest[0]) <= GOOD_ENOUGH / 4.0:
            raise StopIteration

    options = {"maxiter": 5000, "maxcor": 30, "gtol": 0.0, "ftol": 0.0}
    start = np.zeros(model.classes * len(stretch))
    flat = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options=options, callback=stop_when_sure).x
    loss, gradient = loss_and_gradient(flat)
    return Optimum(as_params(flat.reshape(model.classes, -1) / stretch @ directions), loss, certainty(gradient))


def _principal(x: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues of xᵀx that are not 0, and their directions, one per row; by xxᵀ where that is smaller."""
    few = len(x) < x.shape[1]
    size, vectors = eigh(x @ x.T if few else x.T @ x)
    real = size > 1e-12 * size[-1]
    size, vectors = size[real], vectors[:, real]
    return size, (x.T @ vectors / np.sqrt(size)).T if few else vectors.T


def smoothness_bound(model: SoftmaxRegression, x: Floats) -> float:
    """½ λ_max(mean of x xᵀ) + penalty: the softmax's own curvature is at most ½."""
    vector = np.ones(x.shape[1])
    top = 0.0
    for _ in range(200):
        following = x.T @ (x @ vector) / len(x)
        before, top = top, float(np.linalg.norm(following) / np.linalg.norm(vector))
        vector = following / np.linalg.norm(following)
        if abs(top - before) <= 1e-10 * top:
            break
    return 0.5 * top * (1.0 + 1e-6) + model.penalty


def gradient_moments(model: SoftmaxRegression, matrix: Floats, x: Floats, labels: Labels) -> tuple[float, float]:
    """Variance of one sample's gradient, and squared norm of the mean gradient, over these samples."""
    p = likely(matrix, x)
    p[np.arange(len(labels)), labels] -= 1.0
    second = float((np.square(p).sum(axis=1) * np.square(x).sum(axis=1)).mean())
    mean = p.T @ x / len(x)
    return second - float(np.square(mean).sum()), float(np.square(mean + model.penalty * matrix).sum())
