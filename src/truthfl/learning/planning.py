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
from truthfl.mechanism.assignment import optimal_batch_sizes
from truthfl.mechanism.contract import Contract, lceme
from truthfl.mechanism.setting import Clients, Training
from truthfl.mechanism.spread import confidence_margin


@dataclass(frozen=True, eq=False)
class Plan:
    """What is announced, and what it rests on.

    training       with the step size that serves its rounds best
    search         how that was found; None where the step size was given
    clients        as the mechanism knows them: weights, costs, the pilot's gradient variance
    calibration    the loss model, with standard errors
    contract       with the margin that keeps honest pay from falling below cost, at the confidence asked for
    loss_error     the standard deviation of (loss at settlement − expected loss) that the margin covers
    loss_variance  of the loss from one test sample to another
    """

    training: Training
    search: StepSearch | None
    clients: Clients
    calibration: Calibration
    contract: Contract
    loss_error: float
    loss_variance: float


def make_plan(
    side: ServerSide,
    *,
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
    """Tune the step size (unless it is given), fit the loss model, assign batch sizes, write the contract."""
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
    batches = optimal_batch_sizes(
        clients, fitted.model, training, loss_value=loss_value, budget=budget, margin=margin
    ).astype(float)
    spread, variance = spread_of_loss(found.trial, side.test, found.trial_batches(batches))
    error = sqrt(spread**2 + fitted.truthful_loss_error(batches) ** 2 + variance / test_samples)
    bare = lceme(clients, fitted.model, training, batches)
    extra = confidence_margin(bare, error, confidence=confidence) + margin
    return Plan(
        training=training,
        search=found.search,
        clients=clients,
        calibration=fitted,
        contract=lceme(clients, fitted.model, training, batches, margin=extra),
        loss_error=error,
        loss_variance=variance,
    )
