"""The loss model fitted to what training really does: pilot runs, four numbers, and how sure they are.

The shape is the mechanism's (docs/mechanism.md, section 2): sampling ∝ p_i²σ_i², labeling ∝ p_i β, reporting ∝ p_i G².
Runs with different batch sizes, without some labels and with scaled reports give the factors. Looks at `federated`,
`training`, `gradients`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.learning.federated import Federated
from truthfl.learning.gradients import Gradients
from truthfl.learning.images import LabeledImages
from truthfl.learning.training import train
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.strategies import Strategies

PARTS = ("constant", "sampling", "labeling", "reporting")
TYPICAL_RUNS = 20.0  # how many runs of a kind weigh as much as what is typical of all kinds


@dataclass(frozen=True, eq=False)
class Pilot:
    """Runs and the loss each ended with: strategies (runs, N), loss (runs,)."""

    strategies: Strategies
    loss: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Calibration:
    """The fitted loss model; the four factors with standard errors; and how much of the losses' variation it explains.

    `sampling_r_squared` is that of c + v/D alone, over the means of the honest runs by batch size.
    """

    model: LossModel
    factor: NDArray[np.float64]
    covariance: NDArray[np.float64]
    r_squared: float
    sampling_r_squared: float

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """Of each factor."""
        return np.sqrt(np.diag(self.covariance))

    def truthful_loss_error(self, batch_size: ArrayLike) -> float:
        """The standard error of the fitted loss when everybody is honest with these batches: what a margin covers."""
        sampling = float((self.model.sampling / np.asarray(batch_size, dtype=float)).sum()) / self.factor[1]
        row = np.array([1.0, sampling, 0.0, 0.0])
        return float(np.sqrt(row @ self.covariance @ row))


def pilot_runs(
    federated: Federated,
    pilot: LabeledImages,
    *,
    batch_sizes: Sequence[int] = (5, 10, 20, 40, 80, 160),
    report_scales: Sequence[float] = (0.5, 0.75, 1.25, 1.5),
    seeds: int = 20,
    honest_seeds: int | None = None,
    lie_batch_size: int = 40,
) -> Pilot:
    """Honest runs at several batch sizes; runs in which one client in turn does not label, or scales her report.

    `honest_seeds` are for the honest runs, as many as `seeds` unless given: what batch size does to the loss is small,
    and takes more runs to see.
    """
    count = len(federated.partition)
    sizes = np.asarray(batch_sizes, dtype=float)
    lies, honest = seeds * count, len(sizes) * (honest_seeds or seeds)
    who = np.eye(count, dtype=bool).repeat(seeds, axis=0)
    efforts = [np.ones((honest, count)), np.where(who, 0.0, 1.0)]
    batches = [
        np.repeat(sizes, honest // len(sizes))[:, None] * np.ones(count),
        np.full((lies, count), float(lie_batch_size)),
    ]
    scales = [np.ones((honest, count)), np.ones((lies, count))]
    draws = [np.tile(np.arange(honest // len(sizes)), len(sizes)), np.tile(np.arange(seeds), count)]
    for scale in report_scales:
        efforts.append(np.ones((lies, count)))
        batches.append(np.full((lies, count), float(lie_batch_size)))
        scales.append(np.where(who, scale, 1.0))
        draws.append(np.tile(np.arange(seeds), count))
    played = Strategies(np.concatenate(efforts), np.concatenate(batches), np.concatenate(scales))
    every_draw = np.concatenate(draws)
    done = train(federated, played, every_draw, watch={"pilot": pilot})
    return Pilot(played, done.watched["pilot"].loss[:, -1])


def calibrate(federated: Federated, runs: Pilot, gradients: Gradients) -> Calibration:
    """Least squares of the pilot losses on the four parts of the gap, runs that scatter more counting less.

    A part that comes out negative is set to 0.
    """
    if not np.isfinite(runs.loss).all():
        raise InputError("a pilot run ended with no finite loss; the step size is too large to calibrate at.")
    p, played = federated.weight, runs.strategies
    by_client = (
        np.square(p) * gradients.gradient_variance,
        p * gradients.label_shift,
        p * gradients.gradient_bound,
    )
    design = np.stack(
        (
            np.ones(len(runs.loss)),
            (by_client[0] / played.batch_size).sum(axis=1),
            (by_client[1] * (1.0 - played.labeling_effort)).sum(axis=1),
            (by_client[2] * np.square(played.report_scale - 1.0)).sum(axis=1),
        ),
        axis=1,
    )
    honest = (played.labeling_effort == 1).all(axis=1) & (played.report_scale == 1).all(axis=1)
    if len(np.unique(design[honest, 1])) < 3:
        raise InputError("the pilot has honest runs at fewer than three batch sizes; it needs at least three to fit.")
    factor, covariance, r_squared = _least_squares(design, runs.loss)
    kept = np.maximum(factor, 0.0)
    model = LossModel(
        constant=float(kept[0]),
        sampling=kept[1] * by_client[0],
        labeling=kept[2] * by_client[1],
        reporting=kept[3] * by_client[2],
    )
    return Calibration(
        model=model,
        factor=factor,
        covariance=covariance,
        r_squared=r_squared,
        sampling_r_squared=_r_squared_of_means(design[honest, 1], runs.loss[honest]),
    )


def _least_squares(
    design: NDArray[np.float64], loss: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Coefficients, their covariance (valid also where the spread differs between runs), and R²."""
    weighted = design / _scatter(design, loss)[:, None]
    inverse = np.linalg.pinv(weighted.T @ design)
    factor = inverse @ weighted.T @ loss
    residual = loss - design @ factor
    scale = len(loss) / max(len(loss) - design.shape[1], 1)
    covariance = inverse @ ((weighted * np.square(residual)[:, None]).T @ weighted) @ inverse * scale
    total = np.square(loss - loss.mean()).sum()
    return factor, covariance, float(1.0 - np.square(residual).sum() / total)


def _scatter(design: NDArray[np.float64], loss: NDArray[np.float64]) -> NDArray[np.float64]:
    """The variance of each run's loss: that among runs of its kind, drawn to the typical one where these are few."""
    kind = np.unique(design, axis=0, return_inverse=True)[1].ravel()
    times = np.bincount(kind)
    squares = np.bincount(kind, np.square(loss - (np.bincount(kind, loss) / times)[kind]))
    repeated = (times > 1) & (squares > 0)
    typical = float(np.median(squares[repeated] / (times[repeated] - 1))) if repeated.any() else 1.0
    variance: NDArray[np.float64] = (squares + TYPICAL_RUNS * typical) / (np.maximum(times - 1, 0) + TYPICAL_RUNS)
    return variance[kind]


def _r_squared_of_means(x: NDArray[np.float64], loss: NDArray[np.float64]) -> float:
    levels = np.unique(x)
    means = np.array([loss[x == level].mean() for level in levels])
    slope, intercept = np.polyfit(levels, means, 1)
    return float(1.0 - np.square(means - intercept - slope * levels).sum() / np.square(means - means.mean()).sum())
