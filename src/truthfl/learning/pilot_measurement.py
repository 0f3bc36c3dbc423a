"""Measures step size, gradient variances and loss model on the server's pilot data.

With up to `WHOLE_PILOT_CLIENTS` clients, every client lies in turn in runs of the whole federation. With more, a sample
of the clients lies in runs of a reduced federation, and the fitted factors are transferred to all clients.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from truthfl.learning.blas_threads import one_blas_thread
from truthfl.learning.calibration import Calibration, calibrate, transferred_to
from truthfl.learning.federated import Federated
from truthfl.learning.federations import ServerSide, with_training
from truthfl.learning.gradients import measure_gradients, measure_reduced_and_whole
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.pilot_design import PilotDesign, RunKind
from truthfl.learning.pilot_runs import final_losses, paired_pilot_runs, pilot_runs
from truthfl.learning.reduced_federation import ReducedFederation, reduce_federation, some_clients_of
from truthfl.learning.step_size import StepSearch, find_step_size
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.setting import Training

WHOLE_PILOT_CLIENTS = 10  # up to this number, the pilot runs are those of the whole federation
SEARCH_BATCH_FACTOR = 4  # of the step search with many clients: larger batches, and as many times fewer seeds
ABSENCE_SEED_FACTOR = 2  # more seeds instead, if clients are absent at times, which larger batches do not even out
CONSTANT_SEEDS = 4  # honest runs from which the constant is measured
CONSTANT_CLIENTS = 1000  # at most, in each of these runs
MAX_SAMPLES_PER_STEP = 10_000  # in these runs, of all clients together
MAX_SAMPLES_PER_ROUND = 2000  # of all clients of the reduced federation, when the spread of the loss is measured


def measure_pilot(side: ServerSide, design: PilotDesign, *, tune_step: bool) -> PilotMeasurement:
    """Run the pilot and fit the loss model; losses are those on the test set. The step size is tuned if `tune_step`.

    Partial participation changes the loss more than a lie does. So paired runs, which only the reduced federation has,
    are used whenever a client is sometimes absent.
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

    With several local steps, the local models of a group's members would drift apart, which the merged group does not
    reproduce. The drift is part of the constant. Of many clients some train, with the weight of all, and others in each
    run: so the standard error has in it who they are. p² in the sampling part grows with their weights.
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
    """The number of seeds of a step search with batches so many times larger.

    Too few may choose a step size at which training is not stable any more.
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
    return with_training(federated, replace(federated.training, step_size=search.parabola_minimum))


@dataclass(frozen=True, eq=False)
class PilotMeasurement:
    """The pilot's results, from which a plan is made.

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

        Scaled down, and so noisier, if they exceed `MAX_SAMPLES_PER_ROUND` in all.
        """
        if self.reduced is None:
            return batch_size
        federation, fitted = self.reduced
        sizes = fitted.model.sampling / federation.sum_by_group(self.calibration.model.sampling / batch_size)
        scale = min(1.0, MAX_SAMPLES_PER_ROUND / float(sizes.sum()))
        return np.asarray(np.maximum(np.rint(sizes * scale), 1.0))
