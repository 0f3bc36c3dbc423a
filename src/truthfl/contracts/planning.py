"""Plans a job on the operator's own data, and what the work of the plan is worth.

Uses the pilot federation and the test set only, not the clients' data. A contract that pays by solo models is planned
in `audition_planning`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.audition.plan import MOST_PAY
from truthfl.contracts.audition.planning import AuditionDetails, AuditionSettings, plan_on_pilot
from truthfl.contracts.contract import Evidence, Mechanism, PlanInputs, require_collected, require_sound
from truthfl.contracts.lceme.contract import Contract
from truthfl.contracts.lceme.pilot import Calibration, measure_pilot
from truthfl.contracts.lceme.private_costs import CostDistribution
from truthfl.contracts.setting import Clients, FloatArray, Training
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.pilot.honest_rounds import Bounds, measure_report_bounds
from truthfl.learning.pilot.runs import PilotDesign, measure_loss_by_rounds, spread_of_loss
from truthfl.learning.pilot.step_size import StepSearch


@dataclass(frozen=True, eq=False)
class Plan:
    """The contract of a job and the measurements from which it was made.

    training       the training parameters, with the tuned step size
    search         the step search; None if the step size was given
    clients        weights, costs and the gradient variances measured on the pilot data
    calibration    the loss model, with standard errors
    contract       the mechanism's plan: batch sizes and terms of pay
    loss_error     the standard deviation of (loss at settlement − expected loss) that the margin covers
    loss_variance  the variance of the loss between test samples
    side           the pilot federation of the clients who are asked, with the samples that they are asked to label, and
                   the test set
    report_bounds  the lengths that one honest report in a million exceeds; see `report_bound`
    loss_by_rounds rise of the expected loss if training ends after 0, 1/k, 2/k, … of the rounds
    audition       how an audition contract came about; None for other contracts
    """

    training: Training
    search: StepSearch | None
    clients: Clients
    calibration: Calibration
    contract: Mechanism
    loss_error: float
    loss_variance: float
    side: ServerSide
    report_bounds: Bounds
    loss_by_rounds: tuple[float, ...]
    audition: AuditionDetails | None = None

    @property
    def expected_loss(self) -> float:
        """The loss of the joint model if all are honest."""
        return self.calibration.model.truthful_loss(self.contract.batch_size)


def make_plan(
    side: ServerSide,
    *,
    mechanism: type[Mechanism] = Contract,
    name: tuple[str, ...] | None = None,
    sample_cost: ArrayLike,
    labeling_cost: ArrayLike,
    loss_value: float,
    budget: float | None = None,
    budget_bounds: str = "expected",
    margin: float = 0.0,
    confidence: float = 0.95,
    most_pay: float = MOST_PAY,
    test_samples: int = 1,
    tune_step: bool = True,
    design: PilotDesign | None = None,
    cost_distribution: CostDistribution | None = None,
    stated: NDArray[np.bool_] | None = None,
) -> Plan:
    """Tune the step size if `tune_step`, fit the loss model, and plan the mechanism's contract on it.

    cost_distribution, stated   see `PlanInputs`
    """
    if Evidence.SOLO_LOSS in mechanism.needs:
        require_collected(mechanism)
        assert issubclass(mechanism, Audition)
        settings = AuditionSettings(loss_value, budget, budget_bounds, margin, confidence, most_pay, test_samples)
        count = len(side.pilot.partition)
        planned = plan_on_pilot(
            side,
            settings,
            mechanism=mechanism,
            name=name,
            sample_cost=np.broadcast_to(np.asarray(sample_cost, dtype=float), (count,)),
            labeling_cost=np.broadcast_to(np.asarray(labeling_cost, dtype=float), (count,)),
            tune_step=tune_step,
            design=design,
        )
        pilot, terms = planned.pilot, planned.details.plan.contract
        plan = Plan(
            training=pilot.training,
            search=pilot.search,
            clients=planned.clients,
            calibration=pilot.calibration,
            contract=terms,
            loss_error=planned.loss_error,
            loss_variance=planned.loss_variance,
            side=planned.side,
            report_bounds=measure_report_bounds(planned.side, terms.batch_size),
            loss_by_rounds=planned.details.loss_by_rounds,
            audition=planned.details,
        )
        require_sound(terms, plan.clients, plan.expected_loss)
        return plan
    measurement = measure_pilot(side, design or PilotDesign(), tune_step=tune_step)
    fitted, training = measurement.calibration, measurement.training
    clients = Clients(
        weight=side.pilot.weight,
        gradient_variance=measurement.gradient_variance,
        sample_cost=sample_cost,
        labeling_cost=labeling_cost,
        dataset_size=side.pilot.partition.sizes,
        participation=side.pilot.participation,
        name=name,
    )
    cache: dict[bytes, tuple[float, float]] = {}

    def error_and_variance(batches: FloatArray) -> tuple[float, float]:
        """`loss_error` and `loss_variance` of honest runs with these batches, cached."""
        if batches.tobytes() not in cache:
            trial_batches = measurement.trial_batches(batches)
            spread, variance = spread_of_loss(measurement.trial, side.test, trial_batches)
            error = sqrt(spread**2 + fitted.truthful_loss_error(batches) ** 2 + variance / test_samples)
            cache[batches.tobytes()] = error, variance
        return cache[batches.tobytes()]

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
            cost_distribution=cost_distribution,
            stated=stated,
        )
    )
    require_sound(contract, clients, fitted.model.truthful_loss(contract.batch_size))
    error, variance = error_and_variance(contract.batch_size)
    tuned = replace(side, pilot=replace(side.pilot, training=training))
    return Plan(
        training=training,
        search=measurement.search,
        clients=clients,
        calibration=fitted,
        contract=contract,
        loss_error=error,
        loss_variance=variance,
        side=tuned,
        report_bounds=measure_report_bounds(tuned, contract.batch_size),
        loss_by_rounds=measure_loss_by_rounds(
            measurement.trial, side.test, measurement.trial_batches(contract.batch_size)
        ),
    )


START_SEEDS = range(4)  # of initial models, over which their loss is averaged


@dataclass(frozen=True, eq=False)
class PlanWorth:
    """In the job's money.

    untrained_loss  the test loss of a model that nobody trained
    all_work        loss_value times (untrained_loss − the expected loss)
    own             (clients,) loss_value times the rise of the loss without one client's work; of an audition by its
                    joint curve, of other contracts as measured in pilot runs without her
    """

    untrained_loss: float
    all_work: float
    own: FloatArray


def plan_worth(plan: Plan, loss_value: float, absence: FloatArray) -> PlanWorth:
    """The worth of the plan's work; `absence`: the measured rise of the loss without each client."""
    model, test = plan.side.pilot.model, plan.side.test
    untrained = float(np.mean([model.loss(model.init(seed), test.features, test.labels) for seed in START_SEEDS]))
    all_work = loss_value * (untrained - plan.expected_loss)
    if plan.audition is None:
        return PlanWorth(untrained, all_work, loss_value * absence)
    # The curve A / N has no value where nobody is left: one client's work is worth no more than all.
    return PlanWorth(untrained, all_work, np.minimum(plan.audition.worth, max(all_work, 0.0)))
