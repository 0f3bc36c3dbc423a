"""Plans the LCEME contract: batch sizes and a margin for the loss model's error, expected pay being within the budget.

docs/mechanism.md, sections 3 and 4.
"""

from __future__ import annotations

import numpy as np

from truthfl.errors import InfeasibleError
from truthfl.mechanism.assignment import labeling_floor, optimal_batch_sizes
from truthfl.mechanism.checks import FloatArray, inner, rounded_up
from truthfl.mechanism.contract import Contract, lceme
from truthfl.mechanism.mechanism import PlanInputs
from truthfl.mechanism.observation import Observation
from truthfl.mechanism.setting import batch_price
from truthfl.mechanism.spread import confidence_margin

BISECTIONS = 40
TRIES = 6  # of batches whose loss error is measured
ROUNDING = 1e-12


def plan_lceme(inputs: PlanInputs) -> Contract:
    """The server's best batches, and the contract with a margin for the error of the loss at these.

    A budget bounds the sum of expected pay, margins included. The loss error depends on the batches and is measured, so
    batches are chosen for the error of the last ones until what they are paid is within the budget.
    """
    batches = inputs.best_batch_sizes()
    error = inputs.loss_error(batches)
    contract = _with_margin(inputs, batches, error)
    if inputs.budget is None:
        return contract
    for _ in range(TRIES):
        if expected_total(inputs, contract) <= inputs.budget * (1.0 + ROUNDING):
            return contract
        batches = _affordable(inputs, error)
        measured = inputs.loss_error(batches)
        contract, error = _with_margin(inputs, batches, measured), max(1.1 * error, measured)
    raise _too_dear(inputs, contract)


def expected_total(inputs: PlanInputs, contract: Contract) -> float:
    """Σ pay if all are honest."""
    loss = inputs.loss_model.truthful_loss(contract.batch_size)
    return float(contract.pay(Observation(loss)).sum())


def _with_margin(inputs: PlanInputs, batches: FloatArray, error: float) -> Contract:
    bare = lceme(inputs.clients, inputs.loss_model, inputs.training, batches)
    extra = confidence_margin(bare, error, confidence=inputs.confidence) + inputs.margin
    return lceme(inputs.clients, inputs.loss_model, inputs.training, batches, margin=extra)


def _affordable(inputs: PlanInputs, error: float) -> FloatArray:
    """The best batches whose pay, with margins for this error, is within the budget."""
    clients, model, training, budget = inputs.clients, inputs.loss_model, inputs.training, inputs.budget
    assert budget is not None
    floor = labeling_floor(clients, model, training) * (1.0 - ROUNDING)
    lowest = np.maximum(np.ceil(floor), 1.0)
    contract = _with_margin(inputs, lowest, error)
    if expected_total(inputs, contract) > budget * (1.0 + ROUNDING):
        raise _too_dear(inputs, contract)
    low = (
        float(clients.labeling_cost.sum())
        + len(clients) * inputs.margin
        + inner(batch_price(clients, training), lowest)
    )
    best, high = lowest, budget
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        batches = optimal_batch_sizes(
            clients, model, training, loss_value=inputs.loss_value, budget=middle, margin=inputs.margin
        ).astype(float)
        if expected_total(inputs, _with_margin(inputs, batches, error)) <= budget:
            best, low = batches, middle
        else:
            high = middle
    return best


def _too_dear(inputs: PlanInputs, contract: Contract) -> InfeasibleError:
    assert inputs.budget is not None
    total = expected_total(inputs, contract)
    return InfeasibleError(
        f"budget is {inputs.budget:g}; with margins for a confidence of {inputs.confidence:g}, even small batches are "
        f"paid {total:.12g}, {total - inputs.budget:g} more: raise the budget to {rounded_up(total):.10g}, lower the "
        "confidence, or leave clients out."
    )
