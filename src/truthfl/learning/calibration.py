"""The loss model fitted to what training really does: pilot runs, four numbers, and how sure they are.

The shape is the mechanism's (docs/mechanism.md, section 2): sampling ∝ p_i²σ_i², labeling ∝ p_i β, reporting ∝ p_i G².
Runs with different batch sizes, without some labels and with scaled reports give the factors. Looks at `federated`,
`training`, `gradients`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.learning.federated import Federated
from truthfl.learning.gradients import Gradients
from truthfl.learning.pilot_runs import Pilot
from truthfl.mechanism.loss_model import LossModel

PARTS = ("constant", "sampling", "labeling", "reporting")
TYPICAL_RUNS = 20.0  # how many runs of a kind weigh as much as what is typical of all kinds


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


def calibrate(federated: Federated, runs: Pilot, gradients: Gradients) -> Calibration:
    """Least squares of the pilot losses on the four parts of the gap, runs that scatter more counting less.

    Where lies are held against honest runs with the same draws, what lies do is fitted to the differences, and the
    rest to the honest runs. A part that comes out negative is set to 0.
    """
    if not runs.all_finite:
        raise InputError("a pilot run ended with no finite loss; the step size is too large to calibrate at.")
    played, by_client = runs.strategies, _by_client(federated, gradients)
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
    if runs.honest_loss is None:
        fit = _least_squares(design, runs.loss)
    else:
        liar = ((played.labeling_effort != 1) | (played.report_scale != 1))[~honest].argmax(axis=1)
        fit = _side_by_side(
            _least_squares(design[honest, :2], runs.loss[honest]),
            _least_squares(design[~honest, 2:], (runs.loss - runs.honest_loss)[~honest], liar),
        )
    return Calibration(
        model=_loss_model(fit.factor, by_client),
        factor=fit.factor,
        covariance=fit.covariance,
        r_squared=1.0 - fit.unexplained / fit.total,
        sampling_r_squared=_r_squared_of_means(design[honest, 1], runs.loss[honest]),
    )


def carried_to(found: Calibration, federated: Federated, gradients: Gradients) -> Calibration:
    """The same factors for another federation: each client's part of the gap by her own weight and gradients."""
    return replace(found, model=_loss_model(found.factor, _by_client(federated, gradients)))


def _by_client(federated: Federated, gradients: Gradients) -> tuple[NDArray[np.float64], ...]:
    """p_i²σ_i²/q_i, p_i β and p_i G²: docs/mechanism.md, section 2."""
    p = federated.weight
    return (
        np.square(p) * gradients.gradient_variance / federated.participation,
        p * gradients.label_shift,
        p * gradients.gradient_bound,
    )


def _loss_model(factor: NDArray[np.float64], by_client: tuple[NDArray[np.float64], ...]) -> LossModel:
    kept = np.maximum(factor, 0.0)
    return LossModel(
        constant=float(kept[0]),
        sampling=kept[1] * by_client[0],
        labeling=kept[2] * by_client[1],
        reporting=kept[3] * by_client[2],
    )


@dataclass(frozen=True, eq=False)
class _Fit:
    """Coefficients, their covariance, the sum of squares that they leave, and that there was."""

    factor: NDArray[np.float64]
    covariance: NDArray[np.float64]
    unexplained: float
    total: float


def _least_squares(
    design: NDArray[np.float64], loss: NDArray[np.float64], cluster: NDArray[np.int64] | None = None
) -> _Fit:
    """The covariance is valid also where the spread differs between runs; and, where runs are told to belong together,
    where these have something in common. Differences are about 0, losses about their mean.
    """
    weighted = design / _scatter(design, loss)[:, None]
    inverse = np.linalg.pinv(weighted.T @ design)
    factor = inverse @ weighted.T @ loss
    residual = loss - design @ factor
    if cluster is None:
        scale = len(loss) / max(len(loss) - design.shape[1], 1)
        covariance = inverse @ ((weighted * np.square(residual)[:, None]).T @ weighted) @ inverse * scale
        return _Fit(factor, covariance, float(np.square(residual).sum()), float(np.square(loss - loss.mean()).sum()))
    scores = np.zeros((cluster.max() + 1, design.shape[1]))
    np.add.at(scores, cluster, weighted * residual[:, None])
    count = len(np.unique(cluster))
    covariance = inverse @ scores.T @ scores @ inverse * (count / max(count - 1, 1))
    return _Fit(factor, covariance, float(np.square(residual).sum()), float(np.square(loss).sum()))


def _side_by_side(first: _Fit, second: _Fit) -> _Fit:
    """Two fits of different coefficients as one."""
    count = len(first.factor)
    covariance = np.zeros((count + len(second.factor),) * 2)
    covariance[:count, :count], covariance[count:, count:] = first.covariance, second.covariance
    factor = np.concatenate((first.factor, second.factor))
    return _Fit(factor, covariance, first.unexplained + second.unexplained, first.total + second.total)


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
