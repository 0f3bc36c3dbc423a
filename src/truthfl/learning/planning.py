"""What a server does on its own data before it announces anything: step size, loss model, batch sizes, contract.

Everything here is computed from the pilot federation and the test set; the clients' data are not looked at. Looks at
`federations`, `findings`, `loss_spread`, and at the mechanism, whose contract it makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from numpy.typing import ArrayLike

from truthfl.learning.calibration import Calibration
from truthfl.learning.federations import ServerSide
from truthfl.learning.findings import findings
from truthfl.learning.loss_spread import spread_of_loss
from truthfl.learning.pilot_design import PilotDesign
from truthfl.learning.step_size import StepSearch
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.contract import Contract
from truthfl.mechanism.mechanism import Mechanism, PlanInputs, require_sound
from truthfl.mechanism.setting import Clients, Training


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
    design: PilotDesign | None = None,
) -> Plan:
    """Tune the step size (unless it is given), fit the loss model, and let the mechanism plan with it."""
    found = findings(side, design or PilotDesign(), tune_step=tune_step)
    fitted, training = found.calibration, found.training
    clients = Clients(
        weight=side.pilot.weight,
        gradient_variance=found.gradient_variance,
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
            spread, variance = spread_of_loss(found.trial, side.test, found.trial_batches(batches))
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
        search=found.search,
        clients=clients,
        calibration=fitted,
        contract=contract,
        loss_error=error,
        loss_variance=variance,
    )
