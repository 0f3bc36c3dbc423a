"""The mechanism's constants for a model and its data, each with how it was found and what kind of number it is.

Where the clients' data are out of reach, give a federation made of the server's own pilot data instead. Looks at
`federated`, `gradients`, `convex`, and at the mechanism, whose `Constants` and `Clients` it fills.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from truthfl.errors import InputError
from truthfl.learning import convex
from truthfl.learning.federated import Federated
from truthfl.learning.gradients import MOMENTS, Gradients, honest_path
from truthfl.learning.softmax import SoftmaxRegression
from truthfl.mechanism.setting import Clients, Constants

Kind = Literal["exact", "bound", "estimate"]


@dataclass(frozen=True, eq=False)
class Found:
    """One constant: its value (one number, or one per client), its kind, and how it was found."""

    value: float | NDArray[np.float64]
    kind: Kind
    how: str


@dataclass(frozen=True, eq=False)
class Measured:
    """All constants of mechanism.md, section 1."""

    smoothness: Found
    strong_convexity: Found
    label_shift: Found
    gradient_bound: Found
    initial_distance: Found
    optimal_loss: Found
    gradient_variance: Found
    heterogeneity: Found

    def gradients(self) -> Gradients:
        """For the calibration."""
        variance = np.asarray(self.gradient_variance.value)
        return Gradients(variance, float(self.label_shift.value), float(self.gradient_bound.value))

    def constants(self) -> Constants:
        """For the bounds."""
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


def measure_constants(federated: Federated, *, batch_size: int = 50, seed: int = 0) -> Measured:
    """Softmax regression: formulas where there are some, and gradients along an honest training run.

    Other models' losses are not convex: strong convexity, the optimum and what hangs on it are not defined for them,
    and this raises. `measure_gradients` gives what can be had of any model.
    """
    model = federated.model
    if not isinstance(model, SoftmaxRegression):
        raise InputError(
            f"{type(model).__name__} has no strongly convex loss, so the bounds' constants are not defined for it; "
            "calibrate its loss model instead, or use softmax regression."
        )
    with threadpool_limits(limits=1, user_api="blas"):  # many small products: threads would wait for each other
        return _measured(model, federated, batch_size, seed)


def _measured(model: SoftmaxRegression, federated: Federated, batch_size: int, seed: int) -> Measured:
    visited = [convex.as_matrix(model, p) for p in honest_path(federated, batch_size, seed)]
    pieces = [
        (
            convex.features(model, federated.data.images[federated.partition.rows_of(i)]),
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
    there = np.array([_mean_loss(model, at_best, xi, yi) for xi, yi in pieces])
    norms = np.array([np.square(xi).sum(axis=1).mean() for xi, _ in pieces])
    start = convex.as_matrix(model, model.init(seed))
    path = f"largest at {MOMENTS + 1} moments of an honest run of {federated.training.rounds} rounds and at the optimum"
    return Measured(
        smoothness=Found(
            max(convex.smoothness_bound(model, xi) for xi, _ in pieces),
            "bound",
            "half the largest eigenvalue of any client's mean xxᵀ, plus the penalty",
        ),
        strong_convexity=Found(model.penalty, "bound", "the penalty"),
        label_shift=Found(
            2.0 * (1.0 - 1.0 / model.classes) * float(norms.max()),
            "exact",
            "2 (1 − 1/K) times the largest client's mean ‖x‖², bias included",
        ),
        gradient_bound=Found(float(moments[:, :, 1].max()), "estimate", path),
        initial_distance=Found(
            float(np.square(start - at_best).sum()), "exact", f"from the optimum, known to {best.certainty:.1g} in loss"
        ),
        optimal_loss=Found(best.loss, "bound", f"L-BFGS; above the minimum by at most {best.certainty:.1g}"),
        gradient_variance=Found(moments[:, :, 0].max(axis=0), "estimate", path),
        heterogeneity=Found(
            np.maximum(there - np.array([one.loss for one in own]), 0.0),
            "estimate",
            f"two optima, each known to {max(one.certainty for one in own):.1g} or better",
        ),
    )


def _mean_loss(model: SoftmaxRegression, matrix: convex.Floats, x: convex.Floats, labels: NDArray[np.int64]) -> float:
    p = convex.likely(matrix, x)[np.arange(len(labels)), labels]
    return -float(np.log(np.maximum(p, 1e-300)).mean()) + 0.5 * model.penalty * float(np.square(matrix).sum())
