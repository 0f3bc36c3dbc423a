"""Fits the loss model to pilot runs: four factors with their covariance.

The coefficients are those of docs/mechanism.md, section 2: sampling ∝ p_i²σ_i², labeling ∝ p_i β, reporting ∝ p_i G².
Runs with different batch sizes, without some labels and with scaled reports determine the factors of proportionality.
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

PRIOR_RUNS = 20.0  # weight of the typical variance of all kinds of runs, in runs, when a kind's variance is estimated


@dataclass(frozen=True, eq=False)
class Calibration:
    """The fitted loss model and the quality of the fit.

    factor              factors of (constant, sampling, labeling, reporting)
    covariance          of these factors
    r_squared           of the whole fit
    sampling_r_squared  of c + v/D alone, over the mean losses of the honest runs by batch size
    """

    model: LossModel
    factor: NDArray[np.float64]
    covariance: NDArray[np.float64]
    r_squared: float
    sampling_r_squared: float

    @property
    def standard_error(self) -> NDArray[np.float64]:
        """The standard error of each factor."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))

    def truthful_loss_error(self, batch_size: ArrayLike) -> float:
        """The standard error of the fitted loss when all clients are honest and use these batches."""
        sampling = float((self.model.sampling / np.asarray(batch_size, dtype=float)).sum()) / self.factor[1]
        row = np.array([1.0, sampling, 0.0, 0.0])
        return float(np.sqrt(row @ self.covariance @ row))


def calibrate(federated: Federated, runs: Pilot, gradients: Gradients) -> Calibration:
    """Weighted least squares of the pilot losses on the four terms of the loss gap.

    With paired runs (`runs.honest_loss`), the factors of labeling and reporting are fitted to the differences between
    lying and honest runs, the other two to the honest runs. In the loss model, negative factors are replaced by 0.
    """
    if not runs.all_finite:
        raise InputError("a pilot run ended with no finite loss; the step size is too large to calibrate at.")
    strategies, by_client = runs.strategies, _client_coefficients(federated, gradients)
    design = np.stack(
        (
            np.ones(len(runs.loss)),
            (by_client[0] / strategies.batch_size).sum(axis=1),
            (by_client[1] * (1.0 - strategies.labeling_effort)).sum(axis=1),
            (by_client[2] * np.square(strategies.report_scale - 1.0)).sum(axis=1),
        ),
        axis=1,
    )
    honest = (strategies.labeling_effort == 1).all(axis=1) & (strategies.report_scale == 1).all(axis=1)
    if len(np.unique(design[honest, 1])) < 3:
        raise InputError("the pilot has honest runs at fewer than three batch sizes; it needs at least three to fit.")
    if runs.honest_loss is None:
        fit = _least_squares(design, runs.loss)
    else:
        liar = ((strategies.labeling_effort != 1) | (strategies.report_scale != 1))[~honest].argmax(axis=1)
        fit = _combine_fits(
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


def transferred_to(calibration: Calibration, federated: Federated, gradients: Gradients) -> Calibration:
    """The loss model of another federation with the same factors and its own clients' weights and gradients."""
    by_client = _client_coefficients(federated, gradients)
    return replace(calibration, model=_loss_model(calibration.factor, by_client))


def _client_coefficients(federated: Federated, gradients: Gradients) -> tuple[NDArray[np.float64], ...]:
    """p_i²σ_i²/q_i, p_i β and p_i G²: docs/mechanism.md, section 2."""
    p = federated.weight
    return (
        np.square(p) * gradients.gradient_variance / federated.participation,
        p * gradients.label_shift,
        p * gradients.gradient_bound,
    )


def _loss_model(factor: NDArray[np.float64], by_client: tuple[NDArray[np.float64], ...]) -> LossModel:
    positive = np.maximum(factor, 0.0)
    return LossModel(
        constant=float(positive[0]),
        sampling=positive[1] * by_client[0],
        labeling=positive[2] * by_client[1],
        reporting=positive[3] * by_client[2],
    )


@dataclass(frozen=True, eq=False)
class _Fit:
    """Coefficients, their covariance, the residual sum of squares and the total sum of squares."""

    factor: NDArray[np.float64]
    covariance: NDArray[np.float64]
    unexplained: float
    total: float


def _least_squares(
    design: NDArray[np.float64], loss: NDArray[np.float64], cluster: NDArray[np.int64] | None = None
) -> _Fit:
    """Weighted least squares with a robust covariance: heteroscedastic, or clustered if `cluster` is given.

    The total sum of squares is about the mean of the losses; with `cluster`, `loss` holds differences, and it is
    about 0.
    """
    weighted = design / _run_variances(design, loss)[:, None]
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


def _combine_fits(first: _Fit, second: _Fit) -> _Fit:
    """One fit from two independent fits of different coefficients."""
    count = len(first.factor)
    covariance = np.zeros((count + len(second.factor),) * 2)
    covariance[:count, :count], covariance[count:, count:] = first.covariance, second.covariance
    factor = np.concatenate((first.factor, second.factor))
    return _Fit(factor, covariance, first.unexplained + second.unexplained, first.total + second.total)


def _run_variances(design: NDArray[np.float64], loss: NDArray[np.float64]) -> NDArray[np.float64]:
    """The variance of each run's loss: that among runs with the same design row, shrunk towards the median of all."""
    kind = np.unique(design, axis=0, return_inverse=True)[1].ravel()
    times = np.bincount(kind)
    squares = np.bincount(kind, np.square(loss - (np.bincount(kind, loss) / times)[kind]))
    repeated = (times > 1) & (squares > 0)
    typical = float(np.median(squares[repeated] / (times[repeated] - 1))) if repeated.any() else 1.0
    variance: NDArray[np.float64] = (squares + PRIOR_RUNS * typical) / (np.maximum(times - 1, 0) + PRIOR_RUNS)
    return variance[kind]


def _r_squared_of_means(x: NDArray[np.float64], loss: NDArray[np.float64]) -> float:
    levels = np.unique(x)
    means = np.array([loss[x == level].mean() for level in levels])
    slope, intercept = np.polyfit(levels, means, 1)
    return float(1.0 - np.square(means - intercept - slope * levels).sum() / np.square(means - means.mean()).sum())
