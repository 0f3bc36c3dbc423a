"""Constants of a model and its data, each with its kind and how it was measured.

A server that has no access to the clients' data measures a federation of its own pilot data.

The noise of private training counts as variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.setting import Clients, Constants
from truthfl.errors import InputError
from truthfl.learning.data.partition import Federated
from truthfl.learning.models import convex
from truthfl.learning.models.model import Params
from truthfl.learning.models.softmax import SoftmaxRegression
from truthfl.learning.pilot.reduced_federation import class_counts
from truthfl.learning.privacy import PrivateModel
from truthfl.learning.training.compute import one_blas_thread
from truthfl.learning.training.draws import Purpose, generator
from truthfl.learning.training.rounds import make_engine
from truthfl.learning.training.run import Run

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

    Raises `InputError` for other models. Their losses are not convex, so strong convexity, the optimum and the derived
    constants are not defined. `measure_gradients` works for any model.
    """
    model = federated.model
    if not isinstance(model, SoftmaxRegression):
        raise InputError(
            f"{type(model).__name__} has no strongly convex loss, so the bounds' constants are not defined for it; "
            "calibrate its loss model instead, or use softmax regression."
        )
    with one_blas_thread():  # many small products, where threads would wait for each other
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


MOMENTS = 6  # points of a training run at which gradients are measured
BATCHES, BATCH = 16, 16  # number and size of the batches from which a variance is estimated
MOST_MEASURED = 100  # clients whose own gradients are computed; with more, gradients are computed by class
SHIFTED = 256  # number of samples from which the label shift is estimated


@dataclass(frozen=True, eq=False)
class Gradients:
    """σ_i² of every client, β and G², for the calibration."""

    gradient_variance: NDArray[np.float64]
    label_shift: float
    gradient_bound: float


def measure_gradients(federated: Federated, *, batch_size: int = 50, seed: int = 0) -> Gradients:
    """The largest value of each estimate along an honest run.

    σ_i² comes from the spread of the gradients of small batches, G² from the gradient over all data of a client, and β
    from the gradients of single samples with their own and with random labels.
    """
    path = honest_path(federated, batch_size, seed)[:: MOMENTS // 2]
    rng = generator(seed, Purpose.TEST)
    count = len(federated.partition)
    variance, norm, shift = np.zeros(count), 0.0, 0.0
    for params in path:
        for client in range(count):
            rows = federated.partition.rows_of(client)
            mean = _gradient(federated, params, rows, federated.data.labels[rows])
            batches = rng.choice(rows, (BATCHES, BATCH))
            spread = [_gradient(federated, params, b, federated.data.labels[b]) - mean for b in batches]
            variance[client] = max(variance[client], BATCH * float(np.mean(np.square(spread).sum(axis=1))))
            norm = max(norm, float(np.square(mean).sum()))
            shift = max(shift, _label_shift(federated, params, rng.choice(rows, BATCHES), rng))
    return Gradients(variance + _noise(federated, batch_size), shift, norm)


def measure_reduced_and_whole(
    reduced: Federated, whole: Federated, batch_size: ArrayLike, *, seed: int = 0
) -> list[Gradients]:
    """The gradients of a reduced federation and of the whole one, along an honest run of the reduced one.

    Both hold the same samples. Each sample's gradient is computed once, however many clients hold it. σ_i² is the mean
    of the squared norms minus the squared norm of the mean; with many clients it is the expected value of this. For
    both federations, β and G² are those of the reduced one.
    """
    rows = np.flatnonzero(np.bincount(whole.partition.rows))  # held by at least one client
    rng, shifted = generator(seed, Purpose.TEST), rows[np.linspace(0, len(rows) - 1, SHIFTED).astype(int)]
    own, of_all = np.zeros(len(reduced.partition)), np.zeros(len(whole.partition))
    counts = class_counts(whole) if len(whole.partition) > MOST_MEASURED else None
    square, shift, norm = np.zeros(len(whole.data)), 0.0, 0.0
    path = honest_path(reduced, batch_size, seed)[:: MOMENTS // 2]
    with one_blas_thread():  # thousands of small products, which threads only slow down
        for params in path:
            square[rows] = [
                np.square(_gradient(whole, params, row, whole.data.labels[row])).sum() for row in rows[:, None]
            ]
            shift = max(shift, _label_shift(whole, params, shifted, rng))
            variances, means = _variances_and_means(reduced, params, square)
            np.maximum(own, variances, out=own)
            norm = max(norm, float(means.max()))
            if counts is None:
                variances, _ = _variances_and_means(whole, params, square)
            else:
                variances = _variances_by_class(whole, params, rows, square, counts)
            np.maximum(of_all, variances, out=of_all)
    of_each = float(np.median(np.asarray(batch_size) / reduced.merged))
    noises = (_noise(reduced, batch_size), _noise(whole, of_each))
    return [Gradients(variance + noise, shift, norm) for variance, noise in zip((own, of_all), noises, strict=True)]


def _noise(federated: Federated, batch_size: ArrayLike) -> NDArray[np.float64]:
    """The variance that noise with these batches adds to each client's σ²; divided by D, it is the noise's variance."""
    batches = np.broadcast_to(np.asarray(batch_size, dtype=float), (len(federated.partition),))
    if not isinstance(federated.model, PrivateModel):
        return np.zeros(len(batches))
    return np.array([d * federated.model.noise_variance(d) for d in batches.tolist()]) * federated.merged


def _client_means(federated: Federated, by_sample: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of a quantity over each client's samples."""
    partition = federated.partition
    return np.add.reduceat(by_sample[partition.rows], partition.starts[:-1]) / partition.sizes


def _variances_and_means(
    federated: Federated, params: Params, square: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """σ_i² and ‖∇F_i‖² of each client; `square` has the squared norm of each sample's gradient."""
    means = np.array([_squared_mean(federated, params, k) for k in range(len(federated.partition))])
    return _client_means(federated, square) - means, means


def _variances_by_class(
    federated: Federated,
    params: Params,
    rows: NDArray[np.int64],
    square: NDArray[np.float64],
    counts: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The expected σ_i² of clients with this many samples of each class, `counts` (N, C); computes no gradients.

    With g_c and q_c the mean gradient and the mean squared norm of the N_c samples of class c, and w_c = q_c − ‖g_c‖²,
    a client who draws n_c of them, n in all, has in expectation
    σ_i² = Σ_c (n_c/n) q_c − ‖Σ_c (n_c/n) g_c‖² − Σ_c (n_c/n²) w_c (1 − n_c/N_c).

    rows    the samples held by at least one client
    square  by sample: the squared norm of its gradient
    """
    labels, held = federated.data.labels, np.flatnonzero(counts.any(axis=0))
    of_class = [rows[labels[rows] == c] for c in held]
    mean = np.stack([_gradient(federated, params, own, labels[own]) for own in of_class])
    norm = np.array([square[own].mean() for own in of_class])
    number, size = np.array([len(own) for own in of_class]), federated.partition.sizes[:, None]
    share, products = counts[:, held] / size, mean @ mean.T
    around = share / size * np.maximum(1.0 - counts[:, held] / number, 0.0)
    return np.asarray(share @ norm - ((share @ products) * share).sum(axis=1) - around @ (norm - np.diagonal(products)))


def _squared_mean(federated: Federated, params: Params, client: int) -> float:
    """‖∇F_i‖²; the gradient of a sample that a client holds several times is computed once."""
    rows, times = np.unique(federated.partition.rows_of(client), return_counts=True)
    weight = (times / times.sum()).astype(np.float32)
    labels = federated.data.labels[rows]
    gradient = federated.model.weighted_gradient(params, federated.data.features[rows], labels, weight)
    return float(np.square(gradient.astype(np.float64)).sum())


def honest_path(federated: Federated, batch_size: ArrayLike, seed: int) -> list[Params]:
    """The common models at the start of an honest run and at `MOMENTS` points of it."""
    count, rounds = len(federated.partition), federated.training.rounds
    batches = np.minimum(batch_size, federated.partition.sizes).astype(np.int64)
    run = Run(seed, federated.training.step_size, batches, np.ones(count), federated.true_labels())
    engine, start = make_engine(federated), federated.model.init(seed)
    inner, before, path, done = engine.pack(start), engine.pack(start), [start], 0
    for moment in np.unique(np.linspace(0, rounds, MOMENTS + 1).astype(int))[1:]:
        engine.rounds(run, inner, before, done, int(moment))
        done = int(moment)
        path.append(engine.unpack(inner))
    return path


def _gradient(
    federated: Federated, params: Params, rows: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    weight = np.full(len(rows), 1.0 / len(rows), dtype=np.float32)
    features = federated.data.features[rows]
    return federated.model.weighted_gradient(params, features, labels, weight).astype(np.float64)


def _label_shift(federated: Federated, params: Params, rows: NDArray[np.int64], rng: np.random.Generator) -> float:
    """β: the mean squared change of a sample's gradient when its label is replaced by a random one."""
    other = rng.integers(0, len(federated.data.classes), len(rows))
    shifts = [
        np.square(
            _gradient(federated, params, rows[k : k + 1], federated.data.labels[rows[k : k + 1]])
            - _gradient(federated, params, rows[k : k + 1], other[k : k + 1])
        ).sum()
        for k in range(len(rows))
    ]
    return float(np.mean(shifts))
