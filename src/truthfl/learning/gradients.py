"""What any model's gradients tell: how they vary from sample to sample, with labels, and how large they are.

Sampled along an honest training run, so these are estimates. Looks at `federated`, `engines`, `draws`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import threadpool_limits

from truthfl.learning.draws import Purpose, generator
from truthfl.learning.engines import Run, engine
from truthfl.learning.federated import Federated
from truthfl.learning.model import Params

MOMENTS = 6  # of a training run, at which gradients are looked at
BATCHES, BATCH = 16, 16  # by which a variance is sampled
SHIFTED = 256  # samples, spread over all, whose labels are changed


@dataclass(frozen=True, eq=False)
class Gradients:
    """σ_i² per client, β and G², as the calibration wants them."""

    gradient_variance: NDArray[np.float64]
    label_shift: float
    gradient_bound: float


def measure_gradients(federated: Federated, *, batch_size: int = 50, seed: int = 0) -> Gradients:
    """The largest of each along an honest run, for any model.

    σ_i² from the spread of small batches' gradients, G² from the gradient over a client's whole data, β from gradients
    of single samples with their own and with random labels.
    """
    path = honest_path(federated, batch_size, seed)[:: MOMENTS // 2]
    drawn = generator(seed, Purpose.TEST)
    count = len(federated.partition)
    variance, norm, shift = np.zeros(count), 0.0, 0.0
    for params in path:
        for client in range(count):
            rows = federated.partition.rows_of(client)
            mean = _gradient(federated, params, rows, federated.data.labels[rows])
            batches = drawn.choice(rows, (BATCHES, BATCH))
            spread = [_gradient(federated, params, b, federated.data.labels[b]) - mean for b in batches]
            variance[client] = max(variance[client], BATCH * float(np.mean(np.square(spread).sum(axis=1))))
            norm = max(norm, float(np.square(mean).sum()))
            shift = max(shift, _label_shift(federated, params, drawn.choice(rows, BATCHES), drawn))
    return Gradients(variance, shift, norm)


def gradients_of_all(few: Federated, everybody: Federated, batch_size: ArrayLike, *, seed: int = 0) -> list[Gradients]:
    """The same of two federations that hold the same samples, a reduced one and the whole, along the first one's run.

    Each sample's gradient is looked at once, however many clients hold it, and σ_i² is exactly the mean of their
    squares less the square of their mean; β and G² are those of the first federation for both.
    """
    rows = np.unique(everybody.partition.rows)
    drawn, some = generator(seed, Purpose.TEST), rows[np.linspace(0, len(rows) - 1, SHIFTED).astype(int)]
    variance = [np.zeros(len(one.partition)) for one in (few, everybody)]
    square, shift, norm = np.zeros(len(everybody.data)), 0.0, 0.0
    path = honest_path(few, batch_size, seed)[:: MOMENTS // 2]
    with threadpool_limits(limits=1, user_api="blas"):  # thousands of small products, which threads only slow down
        for params in path:
            square[rows] = [
                np.square(_gradient(everybody, params, row, everybody.data.labels[row])).sum() for row in rows[:, None]
            ]
            shift = max(shift, _label_shift(everybody, params, some, drawn))
            for federated, largest in zip((few, everybody), variance, strict=True):
                means = np.array([_squared_mean(federated, params, k) for k in range(len(federated.partition))])
                np.maximum(largest, _means(federated, square) - means, out=largest)
                norm = max(norm, float(means.max())) if federated is few else norm
    return [Gradients(one, shift, norm) for one in variance]


def _means(federated: Federated, by_sample: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over each client's samples."""
    of = federated.partition
    return np.add.reduceat(by_sample[of.rows], of.starts[:-1]) / of.sizes


def _squared_mean(federated: Federated, params: Params, client: int) -> float:
    """‖∇F_i‖²; a sample that a client holds several times is looked at once."""
    rows, times = np.unique(federated.partition.rows_of(client), return_counts=True)
    weight = (times / times.sum()).astype(np.float32)
    labels = federated.data.labels[rows]
    gradient = federated.model.weighted_gradient(params, federated.data.images[rows], labels, weight)
    return float(np.square(gradient.astype(np.float64)).sum())


def honest_path(federated: Federated, batch_size: ArrayLike, seed: int) -> list[Params]:
    """The common model at the start of an honest run and at a few moments of it."""
    count, rounds = len(federated.partition), federated.training.rounds
    batches = np.minimum(batch_size, federated.partition.sizes).astype(np.int64)
    run = Run(seed, federated.training.step_size, batches, np.ones(count), federated.true_labels())
    by, start = engine(federated), federated.model.init(seed)
    inner, path, done = by.start(start), [start], 0
    for moment in np.unique(np.linspace(0, rounds, MOMENTS + 1).astype(int))[1:]:
        by.rounds(run, inner, done, int(moment))
        done = int(moment)
        path.append(by.params(inner))
    return path


def _gradient(
    federated: Federated, params: Params, rows: NDArray[np.int64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    weight = np.full(len(rows), 1.0 / len(rows), dtype=np.float32)
    images = federated.data.images[rows]
    return federated.model.weighted_gradient(params, images, labels, weight).astype(np.float64)


def _label_shift(federated: Federated, params: Params, rows: NDArray[np.int64], drawn: np.random.Generator) -> float:
    other = drawn.integers(0, len(federated.data.classes), len(rows))
    shifts = [
        np.square(
            _gradient(federated, params, rows[k : k + 1], federated.data.labels[rows[k : k + 1]])
            - _gradient(federated, params, rows[k : k + 1], other[k : k + 1])
        ).sum()
        for k in range(len(rows))
    ]
    return float(np.mean(shifts))
