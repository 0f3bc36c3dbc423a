"""Measures step size, gradient variances and the loss model on the operator's pilot data, and fits its four factors.

The coefficients are those of docs/mechanism.md, section 2: sampling ∝ p_i²σ_i², labeling ∝ p_i β, reporting ∝ p_i G².
Runs with different batch sizes, without some labels and with scaled reports determine the factors of proportionality.

With up to `WHOLE_PILOT_CLIENTS` clients, every client lies in turn in runs of the whole federation. With more, a sample
of the clients lies in runs of a reduced federation, and the fitted factors are applied to all clients.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.setting import FloatArray, Training
from truthfl.errors import InputError
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.data.partition import Federated
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.pilot.constants import Gradients, measure_gradients, measure_reduced_and_whole
from truthfl.learning.pilot.reduced_federation import ReducedFederation, reduce_federation, some_clients_of
from truthfl.learning.pilot.runs import Pilot, PilotDesign, RunKind, final_losses, paired_pilot_runs, pilot_runs
from truthfl.learning.pilot.step_size import StepSearch, find_step_size
from truthfl.learning.training.compute import one_blas_thread

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
    lying and honest runs, and the other two to the honest runs. Negative factors become 0 in the loss model.
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

    The total sum of squares is about the mean of the losses. With `cluster`, `loss` holds differences, and the sum is
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
    """The variance of each run's loss: among runs with the same design row, shrunk towards the median of all."""
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


WHOLE_PILOT_CLIENTS = 10  # up to this number, the pilot runs are those of the whole federation
SEARCH_BATCH_FACTOR = 4  # of the step search with many clients: larger batches, and as many times fewer seeds
ABSENCE_SEED_FACTOR = 2  # more seeds instead, if clients are sometimes absent: larger batches do not help there
CONSTANT_SEEDS = 4  # honest runs from which the constant is measured
CONSTANT_CLIENTS = 1000  # at most, in each of these runs
MAX_SAMPLES_PER_STEP = 10_000  # in these runs, of all clients together
MAX_SAMPLES_PER_ROUND = 2000  # of all clients of the reduced federation, when the spread of the loss is measured


def measure_pilot(side: ServerSide, design: PilotDesign, *, tune_step: bool) -> PilotMeasurement:
    """Run the pilot and fit the loss model; losses are those on the test set. The step size is tuned if `tune_step`.

    Partial participation changes the loss more than a lie does. So paired runs are used whenever a client is sometimes
    absent. Only the reduced federation has them.
    """
    pilot = side.pilot
    whole = len(pilot.partition) <= WHOLE_PILOT_CLIENTS and pilot.participation.min() == 1.0
    measure = measure_whole_federation if whole else measure_reduced_federation
    return measure(side, design, tune_step=tune_step)


def measure_whole_federation(side: ServerSide, design: PilotDesign, *, tune_step: bool) -> PilotMeasurement:
    """Measure on runs of the whole federation; the cost grows with the square of the number of clients."""
    pilot, size = side.pilot, design.lie_batch_size
    search = _search(pilot, side, size, design, design.search_seeds or design.seeds) if tune_step else None
    pilot = _with_step_of(search, pilot)
    with one_blas_thread(), ThreadPoolExecutor(1) as pool:  # gradients are measured in one thread, beside the runs
        measured = pool.submit(measure_gradients, pilot, batch_size=size)
        runs, gradients = pilot_runs(pilot, side.test, design), measured.result()
    fitted = calibrate(pilot, runs, gradients)
    return PilotMeasurement(pilot.training, search, gradients.gradient_variance, fitted, pilot)


def measure_reduced_federation(side: ServerSide, design: PilotDesign, *, tune_step: bool) -> PilotMeasurement:
    """Measure on runs of a reduced federation; the cost hardly grows with the number of clients."""
    reduced, search = reduce_federation(side.pilot), None
    if tune_step:
        larger = max(1.0, min(SEARCH_BATCH_FACTOR, len(side.pilot.partition) / WHOLE_PILOT_CLIENTS))
        seeds = _search_seeds(side.pilot, design, larger)
        search = _search(reduced.federated, side, reduced.batches(larger * design.lie_batch_size), design, seeds)
    reduced = replace(reduced, federated=_with_step_of(search, reduced.federated))
    whole = _with_step_of(search, side.pilot)
    batches = reduced.batches(design.lie_batch_size)
    reduced_gradients, gradients = measure_reduced_and_whole(reduced.federated, whole, batches)
    fitted = calibrate(reduced.federated, paired_pilot_runs(reduced, side.test, design), reduced_gradients)
    calibration = transferred_to(fitted, whole, gradients)
    if whole.training.local_steps > 1 and len(reduced.members) < len(whole.partition):
        calibration = _with_measured_constant(calibration, whole, side.test, design)
    return PilotMeasurement(
        whole.training, search, gradients.gradient_variance, calibration, reduced.federated, (reduced, fitted)
    )


def _with_measured_constant(
    calibration: Calibration, whole: Federated, test: LabeledSamples, design: PilotDesign
) -> Calibration:
    """Replace the constant by that of clients who are not merged: mean honest loss less the model's sampling part.

    With several local steps, the local models of a group's members would drift apart. The merged group does not
    reproduce this drift, which is part of the constant. In a large federation only some clients train, with the weight
    of all, and others in each run. So the standard error includes the choice of clients. p² in the sampling part grows
    with their weights.
    """
    model, old = calibration.model, calibration.factor
    losses, noise = np.empty(CONSTANT_SEEDS), np.empty(CONSTANT_SEEDS)
    for k in range(CONSTANT_SEEDS):
        clients, chosen = some_clients_of(whole, CONSTANT_CLIENTS, (k + 0.5) / CONSTANT_SEEDS)
        size = min(design.lie_batch_size, max(2, MAX_SAMPLES_PER_STEP // len(chosen)))
        batches = np.full(len(chosen), float(size))
        losses[k] = final_losses(clients, test, [RunKind.honest(batches, 1).with_first_seed(k)])[0]
        noise[k] = (model.sampling[chosen] / batches).sum() / np.square(whole.weight[chosen].sum())
    sampling = np.array([0.0, noise.mean() / max(old[1], 1e-300), 0.0, 0.0])
    jacobian = np.eye(4)
    jacobian[0] = -sampling
    covariance = jacobian @ calibration.covariance @ jacobian.T
    covariance[0, 0] += losses.var(ddof=1) / CONSTANT_SEEDS
    factor = np.concatenate(([losses.mean() - sampling @ np.maximum(old, 0.0)], old[1:]))
    model = replace(model, constant=max(float(factor[0]), 0.0))
    return replace(calibration, model=model, factor=factor, covariance=covariance)


def _search_seeds(pilot: Federated, design: PilotDesign, larger: float) -> int:
    """The number of seeds of a step search with batches this many times larger.

    With too few seeds, the search may choose a step size at which training is no longer stable.
    """
    usual = design.search_seeds or design.seeds
    return max(2, round(usual / larger if pilot.participation.min() == 1.0 else usual * ABSENCE_SEED_FACTOR))


def _search(
    federated: Federated, side: ServerSide, batch_size: ArrayLike, design: PilotDesign, seeds: int
) -> StepSearch:
    low, high = design.step_range
    return find_step_size(federated, side.test, batch_size, low=low, high=high, seeds=seeds)


def _with_step_of(search: StepSearch | None, federated: Federated) -> Federated:
    """The federation with the step size of the search; unchanged if there was no search."""
    if search is None:
        return federated
    return replace(federated, training=replace(federated.training, step_size=search.parabola_minimum))


@dataclass(frozen=True, eq=False)
class PilotMeasurement:
    """The pilot's results, the basis of a plan.

    training           the training parameters with the tuned step size
    search             the step search; None if the step size was given
    gradient_variance  σ_i² of every client
    calibration        the loss model of all clients, with standard errors
    trial              the federation of the pilot runs, at the tuned step size
    reduced            the reduced federation and its loss model; None if the runs were those of the whole federation
    """

    training: Training
    search: StepSearch | None
    gradient_variance: FloatArray
    calibration: Calibration
    trial: Federated
    reduced: tuple[ReducedFederation, Calibration] | None = None

    def trial_batches(self, batch_size: FloatArray) -> FloatArray:
        """Batches of the trial federation with the same sampling noise as `batch_size` in the whole federation.

        Scaled down, and so noisier, if their total exceeds `MAX_SAMPLES_PER_ROUND`.
        """
        if self.reduced is None:
            return batch_size
        federation, fitted = self.reduced
        sizes = fitted.model.sampling / federation.sum_by_group(self.calibration.model.sampling / batch_size)
        scale = min(1.0, MAX_SAMPLES_PER_ROUND / float(sizes.sum()))
        return np.asarray(np.maximum(np.rint(sizes * scale), 1.0))
