"""Plans a job on the operator's own data, and computes the worth of the plan's work.

Uses only the pilot federation and the test set, not the clients' data. Each contract has its own `plan_on`; the one
for contracts planned on a loss model is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from truthfl.coded_text import coded
from truthfl.contracts.audition.pilot import measure_solo_stage
from truthfl.contracts.contract import (
    Contract,
    Evidence,
    People,
    PlanInputs,
    Prices,
    SoloPilot,
    require_collected,
    require_sound,
)
from truthfl.contracts.details import LossModelDetails, PlanDetails, PlanWorth, honest_cost
from truthfl.contracts.formulas import COMMON
from truthfl.contracts.lceme.pilot import Calibration, measure_pilot
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.setting import Clients, FloatArray, Training
from truthfl.errors import InputError
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.pilot.honest_rounds import Bounds, honest_jobs, measure_report_bounds
from truthfl.learning.pilot.runs import PilotDesign, measure_loss_by_rounds, spread_of_loss
from truthfl.learning.pilot.step_size import StepSearch
from truthfl.learning.solo import Recipe, recipe_of

WORTH_LESS = coded("news.worth_less", "the labels would be worth less than their price")  # why a plan leaves out


@dataclass(frozen=True, eq=False)
class PilotSide:
    """The data and options for measuring a plan.

    server     the pilot federation and the test set
    tune_step  whether the step size is tuned instead of given
    design     of the pilot; None for the usual one
    """

    server: ServerSide
    tune_step: bool = True
    design: PilotDesign | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """The contract of a job and the measurements from which it was made.

    training       the training parameters, with the tuned step size
    clients        the clients asked: weights, costs, the samples asked for, and measured gradient variances
    contract       the contract's plan: batch sizes and terms of pay
    expected_loss  of the joint model if all are honest
    loss_error     the standard deviation of (loss at settlement − expected loss) that the margin covers
    loss_variance  the variance of the loss between test samples
    side           the pilot federation of the clients asked, with the samples that they are asked to label, and the
                   test set
    report_bounds  the lengths that one honest report in a million exceeds; see `report_bound`
    loss_by_rounds rise of the expected loss if training ends after 0, 1/k, 2/k, … of the rounds; empty if no pay
                   depends on the joint loss
    details        how the plan was made, and what its contract reports about it
    asked          positions, among all, of the clients asked
    left_out       the reasons why others are not asked, by name
    recipe         of solo training; None if the contract needs no solo models
    solo_cost      (clients,) cost of training alone
    start          where training starts, as in `JobTerms`
    solo_bound     the longest solo model that is taken (L2 norm); 0.0 for no bound
    calibration    the loss model, with standard errors; None for a contract that is not planned on one
    search         the step search; None if the step size was given, or tuned with other settings
    """

    training: Training
    clients: Clients
    contract: Contract
    expected_loss: float
    loss_error: float
    loss_variance: float
    side: ServerSide
    report_bounds: Bounds
    loss_by_rounds: tuple[float, ...]
    details: PlanDetails
    asked: NDArray[np.int64]
    left_out: Mapping[str, str] = field(default_factory=dict)
    recipe: Recipe | None = None
    solo_cost: FloatArray | float = 0.0
    start: str = COMMON
    solo_bound: float = 0.0
    calibration: Calibration | None = None
    search: StepSearch | None = None

    @property
    def loss_model(self) -> LossModel:
        """The measured loss model; `InputError` if the contract is not planned on one."""
        if self.calibration is None:
            raise InputError(f"the contract {self.contract.kind!r} is not planned on a model of the joint loss.")
        return self.calibration.model

    @property
    def cost(self) -> FloatArray:
        """(clients,) The cost of honest work: labels, training alone, rounds."""
        return np.asarray(honest_cost(self.clients, self.training, self.contract.batch_size) + self.solo_cost)


def make_plan(contract_type: type[Contract], pilot: PilotSide, people: People, prices: Prices) -> Plan:
    """The plan of this contract; `InputError` if it is not sound."""
    if Evidence.SOLO_LOSS in contract_type.needs:
        require_collected(contract_type)
    plan = contract_type.plan_on(pilot, people, prices)
    require_sound(plan.contract, plan.clients, plan.expected_loss)
    return plan


def plan_on_loss_model(contract_type: type[Contract], pilot: PilotSide, people: People, prices: Prices) -> Plan:
    """Tune the step size, fit the loss model, and plan the contract on it.

    For a contract that needs solo models, it also measures what to expect of these with all labels.
    """
    side = pilot.server
    measurement = measure_pilot(side, pilot.design or PilotDesign(), tune_step=pilot.tune_step)
    fitted, training = measurement.calibration, measurement.training
    clients = Clients(
        weight=side.pilot.weight,
        gradient_variance=measurement.gradient_variance,
        sample_cost=people.sample_cost,
        labeling_cost=people.labeling_cost,
        dataset_size=people.dataset_size,
        participation=people.participation,
        name=people.name,
    )
    cache: dict[bytes, tuple[float, float]] = {}

    def error_and_variance(batches: FloatArray) -> tuple[float, float]:
        """`loss_error` and `loss_variance` of honest runs with these batches, cached."""
        if batches.tobytes() not in cache:
            trial_batches = measurement.trial_batches(batches)
            spread, variance = spread_of_loss(measurement.trial, side.test, trial_batches)
            error = sqrt(spread**2 + fitted.truthful_loss_error(batches) ** 2 + variance / prices.test_samples)
            cache[batches.tobytes()] = error, variance
        return cache[batches.tobytes()]

    recipe, solo = None, None
    if Evidence.SOLO_LOSS in contract_type.needs:
        stated = None if contract_type.recipe is None else recipe_of(contract_type.recipe)
        recipe, stage = measure_solo_stage(side, people, stated)
        solo = SoloPilot(stage, people.sample_cost * recipe.samples)
    contract = contract_type.plan(
        PlanInputs(
            clients,
            fitted.model,
            training,
            prices,
            loss_error=lambda batches: error_and_variance(batches)[0],
            cost_distribution=people.cost_distribution,
            stated=people.stated,
            solo=solo,
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
        expected_loss=fitted.model.truthful_loss(contract.batch_size),
        loss_error=error,
        loss_variance=variance,
        side=tuned,
        report_bounds=measure_report_bounds(honest_jobs(tuned, contract.batch_size)),
        loss_by_rounds=measure_loss_by_rounds(
            measurement.trial, side.test, measurement.trial_batches(contract.batch_size)
        ),
        details=LossModelDetails(prices, people.cost_distribution),
        asked=np.arange(len(clients)),
        recipe=recipe,
        solo_cost=0.0 if solo is None else solo.cost,
    )


START_SEEDS = range(4)  # of initial models, over which their loss is averaged


def plan_worth(
    plan: Plan, loss_value: float, absence: FloatArray, absence_error: FloatArray | float = 0.0
) -> PlanWorth:
    """The worth of the plan's work.

    absence, absence_error   (clients,) rise of the loss without each client in pilot runs, and its standard error; not
                             used by a contract that measures worth itself
    """
    model, test = plan.side.pilot.model, plan.side.test
    if plan.contract.is_calibrated:  # no better than the class frequencies
        shares = np.bincount(test.labels) / len(test)
        untrained = -float((shares[shares > 0] * np.log(shares[shares > 0])).sum())
    else:
        untrained = float(np.mean([model.loss(model.init(seed), test.features, test.labels) for seed in START_SEEDS]))
    all_work, own = loss_value * (untrained - plan.expected_loss), plan.details.worth
    if own is None:
        error = np.broadcast_to(loss_value * np.asarray(absence_error, dtype=float), np.shape(absence))
        return PlanWorth(untrained, all_work, loss_value * absence, error)
    # A curve of the loss has no value without any client: one client's work is worth no more than all.
    return PlanWorth(untrained, all_work, np.minimum(own, max(all_work, 0.0)), np.zeros_like(own))
