"""Measures the mechanism's constants of a model and its data; each comes with its kind and how it was measured.

A server that has no access to the clients' data measures a federation made of its own pilot data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.learning import convex
from truthfl.learning.blas_threads import one_blas_thread
from truthfl.learning.federated import Federated
from truthfl.learning.gradients import MOMENTS, Gradients, honest_path
from truthfl.learning.softmax import SoftmaxRegression
from truthfl.mechanism.setting import Clients, Constants

Kind = Literal["exact", "bound", "estimate"]


@dataclass(frozen=True, eq=False)
class Measurement:
    """One constant: its value (one number, or one per client), its kind, and how it was measured."""

    value: float | NDArray[np.float64]
    kind: Kind
    how: str


@dataclass(frozen=True, eq=False)
class MeasuredConstants:
    """All constants of docs/mechanism.md, section 1."""

    smoothness: Measurement
    strong_convexity: Measurement
    label_shift: Measurement
    gradient_bound: Measurement
    initial_distance: Measurement
    optimal_loss: Measurement
    gradient_variance: Measurement
    heterogeneity: Measurement

    def gradients(self) -> Gradients:
        """Variance, label shift and gradient bound, for `calibrate`."""
        variance = np.asarray(self.gradient_variance.value)
        return Gradients(variance, float(self.label_shift.value), float(self.gradient_bound.value))

    def constants(self) -> Constants:
        """The constants that the bounds need."""
        names = ("smoothness", "strong_convexity", "label_shift", "gradient_bound", "initial_distance", "optimal_loss")
        return Constants(**{name: float(getattr(self, name).value) for name in names})

    def clients(self, federated: Federated, *, sample_cost: ArrayLike, labeling_cost: ArrayLike) -> Clients:
        """The clients of a federation, with these variances and costs."""
        return Clients(
            weight=federated.weight,
            gradient_variance=self.gradient_variance.value,
            sample_cost=sample_cost,
            labeling_cost=labeling_cost,
            dataset_size=federated.partition.sizes,
            heterogeneity=self.heterogeneity.value,
            participation=federated.participation,
        )


def measure_constants(federated: Federated, *, batch_size: int = 50, seed: int = 0) -> MeasuredConstants:
    """Measure softmax regression: by formulas where they exist, else from gradients along an honest training run.

    Raises `InputError` for other models: their losses are not convex, so that strong convexity, the optimum and the
    constants derived from it are not defined. `measure_gradients` works for any model.
    """
    model = federated.model
    if not isinstance(model, SoftmaxRegression):
        raise InputError(
            f"{type(model).__name__} has no strongly convex loss, so the bounds' constants are not defined for it; "
            "calibrate its loss model instead, or use softmax regression."
        )
    with one_blas_thread():  # many small products: threads would wait for each other
        return _measured(model, federated, batch_size, seed)


def _measured(model: SoftmaxRegression, federated: Federated, batch_size: int, seed: int) -> MeasuredConstants:
    visited = [convex.as_matrix(model, p) for p in honest_path(federated, batch_size, seed)]
    pieces = [
        (
            convex.inputs(model, federated.data.features[federated.partition.rows_of(i)]),
            federated.data.labels[federated.partition.rows_of(i)],
        )
        for i in range(len(federated.partition))
    ]
    x, y = np.concatenate([p[0] for p in pieces]), np.concatenate([p[1] for p in pieces])
    weight = np.repeat(federated.weight / federated.partition.sizes, federated.partition.sizes)
    best = convex.find_optimum(model, x, y, weight)
    at_best = convex.as_matrix(model, best.params)
    moments = np.array([[convex.gradient_moments(model, w, xi, yi) for xi, yi in pieces] for w in [*visited, at_best]])
    own = [convex.find_optimum(model, xi, yi, np.full(len(yi), 1.0 / len(yi))) for xi, yi in pieces]
    losses_at_best = np.array([_mean_loss(model, at_best, xi, yi) for xi, yi in pieces])
    norms = np.array([np.square(xi).sum(axis=1).mean() for xi, _ in pieces])
    start = convex.as_matrix(model, model.init(seed))
    path = f"largest at {MOMENTS + 1} moments of an honest run of {federated.training.rounds} rounds and at the optimum"
    return MeasuredConstants(
        smoothness=Measurement(
            max(convex.smoothness_bound(model, xi) for xi, _ in pieces),
            "bound",
            "half the largest eigenvalue of any client's mean xxᵀ, plus the penalty",
        ),
        strong_convexity=Measurement(model.penalty, "bound", "the penalty"),
        label_shift=Measurement(
            2.0 * (1.0 - 1.0 / model.classes) * float(norms.max()),
            "exact",
            "2 (1 − 1/K) times the largest client's mean ‖x‖², bias included",
        ),
        gradient_bound=Measurement(float(moments[:, :, 1].max()), "estimate", path),
        initial_distance=Measurement(
            float(np.square(start - at_best).sum()), "exact", f"from the optimum, known to {best.gap_bound:.1g} in loss"
        ),
        optimal_loss=Measurement(best.loss, "bound", f"L-BFGS; above the minimum by at most {best.gap_bound:.1g}"),
        gradient_variance=Measurement(moments[:, :, 0].max(axis=0), "estimate", path),
        heterogeneity=Measurement(
            np.maximum(losses_at_best - np.array([optimum.loss for optimum in own]), 0.0),
            "estimate",
            f"two optima, each known to {max(optimum.gap_bound for optimum in own):.1g} or better",
        ),
    )


def _mean_loss(model: SoftmaxRegression, matrix: convex.Floats, x: convex.Floats, labels: NDArray[np.int64]) -> float:
    p = convex.probabilities(matrix, x)[np.arange(len(labels)), labels]
    return -float(np.log(np.maximum(p, 1e-300)).mean()) + 0.5 * model.penalty * float(np.square(matrix).sum())
