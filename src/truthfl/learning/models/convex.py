"""Optimum, smoothness and gradient moments of softmax regression, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize

from truthfl.errors import InputError
from truthfl.learning.models.model import Features, Labels
from truthfl.learning.models.softmax import SoftmaxRegression

Floats = NDArray[np.float64]
LOSS_TOLERANCE = 1e-6
TYPICAL_CURVATURE = 0.1  # of the softmax, between 0 and ½; used to precondition the search


@dataclass(frozen=True, eq=False)
class Optimum:
    """The minimizer and its loss, which exceeds the true minimum by at most `gap_bound` = ‖∇F‖²/(2μ)."""

    params: Floats
    loss: float
    gap_bound: float


def inputs(model: SoftmaxRegression, features: Features) -> Floats:
    """One row per sample: its features, bytes divided by 255, and a 1 for the bias."""
    x = features.reshape(len(features), -1).astype(np.float64) / (255.0 if features.dtype == np.uint8 else 1.0)
    if x.shape[1] != model.pixels:
        raise InputError(f"samples have {x.shape[1]} features; the model is for {model.pixels}.")
    return np.concatenate((x, np.ones((len(x), 1))), axis=1)


def as_matrix(model: SoftmaxRegression, params: NDArray[np.floating]) -> Floats:
    """The flat parameters as a matrix (classes, pixels + 1), biases in the last column."""
    weights = params[: -model.classes].reshape(model.classes, model.pixels)
    return np.concatenate((weights, params[-model.classes :, None]), axis=1).astype(np.float64)


def as_params(matrix: Floats) -> Floats:
    """The inverse of `as_matrix`."""
    return np.concatenate((matrix[:, :-1].ravel(), matrix[:, -1]))


def probabilities(matrix: Floats, x: Floats) -> Floats:
    """The model's class probabilities, (samples, classes)."""
    scores = x @ matrix.T
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def find_optimum(model: SoftmaxRegression, x: Floats, labels: Labels, weight: Floats) -> Optimum:
    """The minimum of Σ weight · f; weights sum to 1. Raises `InputError` if the penalty is 0: no optimum need exist.

    Uses L-BFGS with preconditioning: the coordinates are the data's principal directions, each scaled by about the
    square root of its curvature. Directions orthogonal to all samples are left out; the optimum is 0 in them.
    """
    if model.penalty <= 0:
        raise InputError("penalty is 0; softmax regression needs a positive one to have a strongly convex loss.")
    rows = np.arange(len(labels))
    size, directions = _principal(x * np.sqrt(weight)[:, None])
    stretch = np.sqrt(TYPICAL_CURVATURE * size + model.penalty)
    rotated = x @ directions.T / stretch
    penalties = model.penalty / np.square(stretch)
    latest_gradient = [stretch]

    def loss_and_gradient(flat: Floats) -> tuple[float, Floats]:
        matrix = flat.reshape(model.classes, -1)
        p = probabilities(matrix, rotated)
        penalty = 0.5 * float((np.square(matrix) * penalties).sum())
        loss = -float(weight @ np.log(np.maximum(p[rows, labels], 1e-300))) + penalty
        p[rows, labels] -= 1.0
        p *= weight[:, None]
        latest_gradient[0] = (p.T @ rotated + penalties * matrix).ravel()
        return loss, latest_gradient[0]

    def gap_bound(gradient: Floats) -> float:
        return float(np.square(gradient.reshape(model.classes, -1) * stretch).sum()) / (2.0 * model.penalty)

    def stop_when_converged(_flat: Floats) -> None:
        if gap_bound(latest_gradient[0]) <= LOSS_TOLERANCE / 4.0:
            raise StopIteration

    options = {"maxiter": 5000, "maxcor": 30, "gtol": 0.0, "ftol": 0.0}
    start = np.zeros(model.classes * len(stretch))
    flat = minimize(
        loss_and_gradient, start, jac=True, method="L-BFGS-B", options=options, callback=stop_when_converged
    ).x
    loss, gradient = loss_and_gradient(flat)
    return Optimum(as_params(flat.reshape(model.classes, -1) / stretch @ directions), loss, gap_bound(gradient))


def _principal(x: Floats) -> tuple[Floats, Floats]:
    """The non-zero eigenvalues of xᵀx and their eigenvectors, one per row; computed from xxᵀ if that is smaller."""
    use_gram = len(x) < x.shape[1]
    size, vectors = eigh(x @ x.T if use_gram else x.T @ x)
    nonzero = size > 1e-12 * size[-1]
    size, vectors = size[nonzero], vectors[:, nonzero]
    return size, (x.T @ vectors / np.sqrt(size)).T if use_gram else vectors.T


def smoothness_bound(model: SoftmaxRegression, x: Floats) -> float:
    """½ λ_max(mean of x xᵀ) + penalty, by power iteration; the curvature of the softmax is at most ½."""
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
    """The variance of one sample's gradient and the squared norm of the mean gradient, over these samples."""
    p = probabilities(matrix, x)
    p[np.arange(len(labels)), labels] -= 1.0
    second = float((np.square(p).sum(axis=1) * np.square(x).sum(axis=1)).mean())
    mean = p.T @ x / len(x)
    return second - float(np.square(mean).sum()), float(np.square(mean + model.penalty * matrix).sum())
