"""What a server does on its own data before it announces anything: step size, loss model, batch sizes, contract.

Everything here is computed from the pilot federation and the test set; the clients' data are not looked at. Looks at
`federations`, `step_size`, `gradients`, `calibration`, `training`, and at the mechanism, whose contract it makes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.learning.calibration import Calibration, calibrate, pilot_runs
from truthfl.learning.draws import Purpose, generator
from truthfl.learning.federated import Federated
from truthfl.learning.federations import ServerSide, with_training
from truthfl.learning.gradients import measure_gradients
from truthfl.learning.images import LabeledImages
from truthfl.learning.step_size import StepSearch, find_step_size
from truthfl.learning.training import train
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.contract import Contract
from truthfl.mechanism.mechanism import Mechanism, PlanInputs, require_sound
from truthfl.mechanism.setting import Clients, Training
from truthfl.mechanism.strategies import Strategies

TRIAL_BATCH = 50
RESAMPLED_PILOTS = 12
SAMPLES_FOR_VARIANCE = 1000


@dataclass(frozen=True)
class Effort:
    """How much a plan may compute: runs per setting for the step size and for the calibration, sizes and scales.

    Batches much smaller than those that will be asked for are left out: when everybody's are tiny at once, the loss
    rises faster than c + v/D, and work would be overvalued.
    """

    seeds: int = 8
    honest_seeds: int = 60
    batch_sizes: tuple[int, ...] = (20, 40, 80, 160)
    report_scales: tuple[float, ...] = (0.5, 1.5)


@dataclass(frozen=True, eq=False)
class Plan:
    """What is announced, and what it rests on.

    training       with the step size that serves its rounds best
    search         how that was found; None where the step size was given
    clients        as the mechanism knows them: weights, costs, the pilot's gradient variance
    calibration    the loss model, with standard errors
    contract       the mechanism's plan: batch sizes and terms of pay
    loss_error     the standard deviation of (loss at settlement − expected loss) that the margin covers
    loss_variance  of the loss from one test sample to another
    """

    training: Training
    search: StepSearch | None
    clients: Clients
    calibration: Calibration
    contract: Mechanism
    loss_error: float
    loss_variance: float


def make_plan(
    side: ServerSide,
    *,
    mechanism: type[Mechanism] = Contract,
    name: tuple[str, ...] | None = None,
    sample_cost: ArrayLike,
    labeling_cost: ArrayLike,
    loss_value: float,
    budget: float | None = None,
    margin: float = 0.0,
    confidence: float = 0.95,
    test_samples: int = 1,
    tune_step: bool = True,
    effort: Effort | None = None,
) -> Plan:
    """Tune the step size (unless it is given), fit the loss model, and let the mechanism plan with it."""
    effort = effort or Effort()
    search = None
    training = side.pilot.training
    if tune_step:
        search = find_step_size(side.pilot, side.test, TRIAL_BATCH, low=1e-2, seeds=effort.seeds)
        training = replace(training, step_size=search.bottom)
    pilot = with_training(side.pilot, training)
    gradients = measure_gradients(pilot, batch_size=TRIAL_BATCH)
    runs = pilot_runs(
        pilot,
        side.test,
        batch_sizes=effort.batch_sizes,
        report_scales=effort.report_scales,
        seeds=effort.seeds,
        honest_seeds=effort.honest_seeds,
        lie_batch_size=TRIAL_BATCH,
    )
    fitted = calibrate(pilot, runs, gradients)
    clients = Clients(
        weight=side.pilot.weight,
        gradient_variance=gradients.gradient_variance,
        sample_cost=sample_cost,
        labeling_cost=labeling_cost,
        dataset_size=side.pilot.partition.sizes,
        participation=side.pilot.participation,
        name=name,
    )
    measured: dict[bytes, tuple[float, float]] = {}

    def error_and_variance(batches: FloatArray) -> tuple[float, float]:
        """Of the loss when everybody is honest with these batches; measured once."""
        if batches.tobytes() not in measured:
            spread, variance = _spread_of_loss(pilot, side.test, batches)
            error = sqrt(spread**2 + fitted.truthful_loss_error(batches) ** 2 + variance / test_samples)
            measured[batches.tobytes()] = error, variance
        return measured[batches.tobytes()]

    contract = mechanism.plan(
        PlanInputs(
            clients,
            fitted.model,
            training,
            loss_value,
            budget=budget,
            margin=margin,
            confidence=confidence,
            loss_error=lambda batches: error_and_variance(batches)[0],
        )
    )
    require_sound(contract, clients, fitted.model.truthful_loss(contract.batch_size))
    error, variance = error_and_variance(contract.batch_size)
    return Plan(
        training=training,
        search=search,
        clients=clients,
        calibration=fitted,
        contract=contract,
        loss_error=error,
        loss_variance=variance,
    )


def _spread_of_loss(pilot: Federated, test: LabeledImages, batches: NDArray[np.float64]) -> tuple[float, float]:
    """How the final loss of honest work varies between jobs, and between the test samples of one job.

    Between jobs: each trial is another draw of everybody's batches and other data, the pilot's samples drawn anew, with
    replacement, in place of data from elsewhere.
    """
    losses, variances = [], []
    for trial in range(RESAMPLED_PILOTS):
        drawn = generator(trial, Purpose.TEST).integers(0, len(pilot.data), len(pilot.data))
        again = Federated(pilot.model, pilot.data.take(drawn), pilot.partition, pilot.training, weight=pilot.weight)
        done = train(again, Strategies.truthful(batches), trial, watch={"test": test})
        losses.append(float(done.watched["test"].loss[0, -1]))
        variances.append(float(np.var(sample_losses(again, done.params[0], test))))
    return float(np.std(losses, ddof=1)), float(np.mean(variances))


def sample_losses(federated: Federated, params: NDArray[np.float32], test: LabeledImages) -> NDArray[np.float64]:
    """The loss of each test sample by itself, or of enough of them to know the variance."""
    model, images, labels = federated.model, test.images, test.labels
    chosen = np.linspace(0, len(labels) - 1, min(len(labels), SAMPLES_FOR_VARIANCE)).astype(int)
    return np.array([model.loss(params, images[k : k + 1], labels[k : k + 1]) for k in chosen])
