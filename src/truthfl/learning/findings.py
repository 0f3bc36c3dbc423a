"""What the server finds out on its own data: the step size, how gradients vary, the loss model.

Up to `ALL_CLIENTS` clients, every one of them lies in turn, in runs of the whole federation. Of more, some do, in runs
of a reduced federation, and the loss model's own shape carries what is found to all. Looks at `federations`,
`reduced_federation`, `step_size`, `gradients`, `pilot_runs`, `calibration`, `pilot_design`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from truthfl.learning.calibration import Calibration, calibrate, carried_to
from truthfl.learning.federated import Federated
from truthfl.learning.federations import ServerSide, with_training
from truthfl.learning.gradients import gradients_of_all, measure_gradients
from truthfl.learning.images import LabeledImages
from truthfl.learning.pilot_design import PilotDesign, RunKind
from truthfl.learning.pilot_runs import final_losses, paired_pilot_runs, pilot_runs
from truthfl.learning.reduced_federation import ReducedFederation, reduced
from truthfl.learning.step_size import StepSearch, find_step_size
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.setting import Training

ALL_CLIENTS = 10  # with no more than these, every client lies in turn
MORE_SAMPLES = 4  # times as many samples in a batch, and as many fewer seeds, for the step size of many clients
WHOLE_SEEDS = 4  # of honest runs of the whole federation, where clients are many and take several local steps
MOST_LOCAL_SAMPLES = 10_000  # drawn in a step of such a run
MOST_SAMPLES = 2000  # drawn in a round, where the spread of the loss of many clients is looked at


def findings(side: ServerSide, design: PilotDesign, *, tune_step: bool) -> Findings:
    """From the pilot federation; the loss is that on the test set. A step size that is given is kept.

    Who is there in a round and who is not moves the loss more than a lie does, so lies are held against honest runs
    with the same draws also where clients are few but not always there.
    """
    few = len(side.pilot.partition) <= ALL_CLIENTS and side.pilot.participation.min() == 1.0
    return of_whole(side, design, tune_step=tune_step) if few else of_reduced(side, design, tune_step=tune_step)


def of_whole(side: ServerSide, design: PilotDesign, *, tune_step: bool) -> Findings:
    """From runs of the whole federation. What they cost grows with the square of the number of clients."""
    pilot, size = side.pilot, design.lie_batch_size
    search = _search(pilot, side, size, design, design.search_seeds or design.seeds) if tune_step else None
    pilot = _tuned(pilot, search)
    gradients = measure_gradients(pilot, batch_size=size)
    fitted = calibrate(pilot, pilot_runs(pilot, side.test, design), gradients)
    return Findings(pilot.training, search, gradients.gradient_variance, fitted, pilot)


def of_reduced(side: ServerSide, design: PilotDesign, *, tune_step: bool) -> Findings:
    """From runs of a reduced federation, carried to all clients. What they cost hardly grows with their number."""
    few, search = reduced(side.pilot), None
    if tune_step:
        more = max(1.0, min(MORE_SAMPLES, len(side.pilot.partition) / ALL_CLIENTS))
        seeds = max(2, round((design.search_seeds or design.seeds) / more))
        search = _search(few.federated, side, few.batches(more * design.lie_batch_size), design, seeds)
    few = replace(few, federated=_tuned(few.federated, search))
    whole = _tuned(side.pilot, search)
    of_few, of_all = gradients_of_all(few.federated, whole, few.batches(design.lie_batch_size))
    fitted = calibrate(few.federated, paired_pilot_runs(few, side.test, design), of_few)
    found = carried_to(fitted, whole, of_all)
    if whole.training.local_steps > 1 and len(few.members) < len(whole.partition):
        found = _with_the_wholes_constant(found, whole, side.test, design)
    return Findings(whole.training, search, of_all.gradient_variance, found, few.federated, (few, fitted))


def _with_the_wholes_constant(
    found: Calibration, whole: Federated, test: LabeledImages, design: PilotDesign
) -> Calibration:
    """With several local steps a group does not drift apart as its members would, which is a part of the constant.

    So that is taken from honest runs of the whole federation, less what the loss model says of their batches.
    """
    size = min(design.lie_batch_size, max(2, MOST_LOCAL_SAMPLES // len(whole.partition)))
    batches = np.full(len(whole.partition), float(size))
    losses = final_losses(whole, test, [RunKind.honest(batches, WHOLE_SEEDS)])
    sampling = np.array([0.0, (found.model.sampling / batches).sum() / max(found.factor[1], 1e-300), 0.0, 0.0])
    turned = np.eye(4)
    turned[0] = -sampling
    covariance = turned @ found.covariance @ turned.T
    covariance[0, 0] += losses.var(ddof=1) / WHOLE_SEEDS
    factor = np.concatenate(([losses.mean() - sampling @ np.maximum(found.factor, 0.0)], found.factor[1:]))
    model = replace(found.model, constant=max(float(factor[0]), 0.0))
    return replace(found, model=model, factor=factor, covariance=covariance)


def _search(
    federated: Federated, side: ServerSide, batch_size: ArrayLike, design: PilotDesign, seeds: int
) -> StepSearch:
    low, high = design.step_range
    return find_step_size(federated, side.test, batch_size, low=low, high=high, seeds=seeds)


def _tuned(federated: Federated, search: StepSearch | None) -> Federated:
    if search is None:
        return federated
    return with_training(federated, replace(federated.training, step_size=search.bottom))


@dataclass(frozen=True, eq=False)
class Findings:
    """What a plan is made of.

    gradient_variance  σ_i² of every client
    calibration        the loss model of all clients, with standard errors
    trial              the federation that the trial runs were of, at the step size found
    merged             which clients are one in it, and the loss model of these; None where it is the whole federation
    """

    training: Training
    search: StepSearch | None
    gradient_variance: FloatArray
    calibration: Calibration
    trial: Federated
    merged: tuple[ReducedFederation, Calibration] | None = None

    def trial_batches(self, batch_size: FloatArray) -> FloatArray:
        """Batches by which the trial federation is as noisy as the whole one with these; noisier, if these are many."""
        if self.merged is None:
            return batch_size
        few, fitted = self.merged
        sizes = fitted.model.sampling / few.in_sum(self.calibration.model.sampling / batch_size)
        fewer = min(1.0, MOST_SAMPLES / float(sizes.sum()))
        return np.asarray(np.maximum(np.rint(sizes * fewer), 1.0))
