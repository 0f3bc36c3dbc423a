"""The LCEME contract and its plan: pay falls linearly with the test loss, at the slope at which honest work is best.

docs/mechanism.md, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from truthfl.coded_text import coded
from truthfl.contracts.contract import CalculationStep, Contract, LinearPay, Observation, PlanInputs, delivered_share
from truthfl.contracts.formulas import reward
from truthfl.contracts.lceme.assignment import (
    labeling_floor,
    optimal_batch_sizes,
    require_full_participation,
    require_usable,
)
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.payoff import confidence_margin
from truthfl.contracts.setting import (
    Clients,
    FloatArray,
    Training,
    batch_price,
    client_array,
    inner,
    require_rounds,
    rounded_up,
)
from truthfl.errors import InfeasibleError, InputError

FLOOR_TOLERANCE = 1e-9
CALIBRATED = "lceme calibrated"  # on a loss model that was measured; others are on bounds


@dataclass(frozen=True, eq=False)
class LCEME(Contract):
    """LCEME's terms, announced to every client before they start.

    batch_size     D'_i   assigned batch size
    slope          Φ_i    money lost per unit of test loss
    base           Ω_i    pay at loss 0, without the labeling cost
    labeling_cost  c_l    added to the pay
    """

    kind: ClassVar[str] = "lceme"
    study_name: ClassVar[str] = CALIBRATED
    screens: ClassVar[bool] = True
    formula: ClassVar[str] = (
        "reward = base - slope * test_loss + labeling_cost; pay = reward * delivered / asked, rounded to whole units"
    )
    formula_keys: ClassVar[tuple[str, ...]] = ("terms.formula_lceme",)

    batch_size: FloatArray
    slope: FloatArray
    base: FloatArray
    labeling_cost: FloatArray
    name: str = "lceme"

    def __len__(self) -> int:
        return len(self.slope)

    @classmethod
    def plan(cls, inputs: PlanInputs) -> LCEME:
        """The contract with the server's best batches and a margin that covers the loss model's error.

        With a distribution of costs, a client who states their cost gets their item of a screening menu.
        """
        from truthfl.contracts.lceme.private_costs import plan_screened

        return plan_lceme(inputs) if inputs.cost_distribution is None else plan_screened(inputs)

    @classmethod
    def rents(cls, inputs: PlanInputs) -> FloatArray | None:
        from truthfl.contracts.lceme.private_costs import stated_rents

        return None if inputs.cost_distribution is None else stated_rents(inputs)

    def reward(self, test_loss: ArrayLike) -> FloatArray:
        """r_i = Ω_i − Φ_i f(w_T, ξ) + c_l for every client; for losses of shape (…) the result is (…, N)."""
        try:
            loss = np.asarray(test_loss, dtype=float)
        except (TypeError, ValueError):
            raise InputError(f"test_loss is {test_loss!r}; it must be a number, or an array of them.") from None
        if not np.isfinite(loss).all():
            raise InputError("test_loss is not finite; a model with no finite loss cannot settle a contract.")
        return self._reward(loss[..., None] if loss.ndim else loss)

    def pay(self, observation: Observation) -> FloatArray:
        """The reward times the share of rounds that each client delivered."""
        return delivered_share(self._reward(np.asarray(observation.test_loss, dtype=float)), observation)

    def pay_range(self, lowest_loss: float, highest_loss: float) -> tuple[FloatArray, FloatArray]:
        return self._reward(np.float64(highest_loss)), self._reward(np.float64(lowest_loss))

    def explanation(self, money: Callable[[float], str]) -> list[str]:
        return [
            coded(
                "explanation.lceme",
                "At the end the model is tested. The lower its test loss, the better it is and the more you are paid: "
                "each 0.01 of loss is worth {worth}. These figures hold if the others are honest too; anybody who "
                "spoils the model lowers everybody’s pay. The formula has no floor: with a bad enough model the amount "
                "is negative.",
                worth=money(float(self.slope[0]) / 100),
            )
        ]

    def calculation(self, observation: Observation) -> list[CalculationStep]:
        base, slope, labeling = (float(term[0]) for term in (self.base, self.slope, self.labeling_cost))
        loss = float(np.ravel(observation.test_loss)[0])
        earned = float(self._reward(np.float64(loss))[0])
        steps = [
            CalculationStep(
                coded("calculation.lceme.reward", "reward = base − slope × test loss + labeling cost"),
                (base, "−", slope, "×", loss, "+", labeling),
                earned,
            )
        ]
        if observation.delivered is not None and observation.asked is not None:
            counts = (int(np.ravel(observation.delivered)[0]), "/", int(np.ravel(observation.asked)[0]))
            paid = float(np.ravel(self.pay(observation))[0])
            words = coded("calculation.lceme.pay", "pay = reward × reports taken / asked for")
            steps.append(CalculationStep(words, (earned, "×", *counts), paid))
        return steps

    def linear(self) -> LinearPay:
        return LinearPay(self.slope)

    def _reward(self, loss: FloatArray | np.float64) -> FloatArray:
        return np.asarray(reward(self.base, self.slope, self.labeling_cost, loss))


def lceme(
    clients: Clients,
    model: LossModel,
    training: Training,
    batch_size: ArrayLike,
    *,
    margin: ArrayLike = 0.0,
    as_printed: bool = False,
) -> LCEME:
    """The contract for an assignment D' at or above the labeling floor:

        Φ_i = T q_i c_p D'_i² / v_i        Ω_i = Φ_i (gap(1, D', 1) + F̂*) + T q_i c_p D'_i + margin_i

    A margin does not change incentives. It keeps honest pay from falling below cost when the loss model is an estimate
    (see `confidence_margin`). `as_printed` reproduces the paper: F̂* is left out of Ω, and its too low floor is
    accepted (docs/errata.md, numbers 1 and 4).
    """
    require_rounds(training)
    count = len(clients)
    batches = client_array("batch_size", batch_size, count, clients.label, positive=True)
    extra = client_array("margin", margin, count, clients.label)
    require_usable(clients, model)
    if as_printed:
        require_full_participation(clients)
    price = batch_price(clients, training)
    expected = model.truthful_loss(batches) - (model.optimal_loss if as_printed else 0.0)

    slope = np.square(batches) * price / model.sampling
    _require_labeling_pays(clients, model, training, batches, slope, as_printed)
    _require_within_data(clients, batches)
    base = slope * expected + price * batches + extra
    return LCEME(batch_size=batches.copy(), slope=slope, base=base, labeling_cost=clients.labeling_cost.copy())


def lceme_with_margin(
    clients: Clients,
    model: LossModel,
    training: Training,
    batch_size: ArrayLike,
    loss_error: float,
    *,
    confidence: float = 0.95,
    more: ArrayLike = 0.0,
) -> LCEME:
    """`lceme` with the margin that covers this standard error of the expected loss, and `more` besides."""
    bare = lceme(clients, model, training, batch_size)
    margin = confidence_margin(bare, loss_error, confidence=confidence) + np.asarray(more)
    return lceme(clients, model, training, batch_size, margin=margin)


def _require_labeling_pays(
    clients: Clients,
    model: LossModel,
    training: Training,
    batches: FloatArray,
    slope: FloatArray,
    as_printed: bool,
) -> None:
    """Raise `InputError` unless Φ_i b_i ≥ c_l, which is equivalent to the floor on the batch size."""
    cost = clients.labeling_cost * clients.weight if as_printed else clients.labeling_cost

    low = slope * model.labeling * (1.0 + FLOOR_TOLERANCE) < cost
    if low.any():
        first = int(np.argmax(low))
        floor = labeling_floor(clients, model, training, as_printed=as_printed)
        raise InputError(
            f"batch_size of {clients.label(first)} is {batches[first]:g}; it must be at least {floor[first]:.4f}, "
            "because below that they gain by not labeling."
        )


def _require_within_data(clients: Clients, batches: FloatArray) -> None:
    high = batches > clients.dataset_size
    if high.any():
        first = int(np.argmax(high))
        raise InputError(
            f"batch_size of {clients.label(first)} is {batches[first]:g}; their dataset_size is "
            f"{clients.dataset_size[first]}, and a batch cannot be larger."
        )


BISECTIONS = 40
TRIES = 6  # of batches whose loss error is measured
ROUNDING = 1e-12


def plan_lceme(inputs: PlanInputs) -> LCEME:
    """The server's best batches, and the contract with a margin for the error of the loss at these.

    A budget bounds the sum of expected pay, margins included. The loss error depends on the batches and is measured. So
    batches are chosen for the error of the previous ones until their pay is within the budget.
    """
    batches = inputs.best_batch_sizes()
    error = inputs.loss_error(batches)
    contract = _with_margin(inputs, batches, error)
    if inputs.prices.budget is None:
        return contract
    for _ in range(TRIES):
        if expected_total(inputs, contract) <= inputs.prices.budget * (1.0 + ROUNDING):
            return contract
        batches = _affordable(inputs, error)
        measured = inputs.loss_error(batches)
        contract, error = _with_margin(inputs, batches, measured), max(1.1 * error, measured)
    raise _too_dear(inputs, contract)


def expected_total(inputs: PlanInputs, contract: LCEME) -> float:
    """Σ pay if all are honest."""
    loss = inputs.loss_model.truthful_loss(contract.batch_size)
    return float(contract.pay_at(loss).sum())


def _with_margin(inputs: PlanInputs, batches: FloatArray, error: float) -> LCEME:
    return lceme_with_margin(
        inputs.clients,
        inputs.loss_model,
        inputs.training,
        batches,
        error,
        confidence=inputs.prices.confidence,
        more=inputs.prices.margin,
    )


def _affordable(inputs: PlanInputs, error: float) -> FloatArray:
    """The best batches whose pay, with margins for this error, is within the budget."""
    clients, model, training, budget = inputs.clients, inputs.loss_model, inputs.training, inputs.prices.budget
    assert budget is not None
    floor = labeling_floor(clients, model, training) * (1.0 - ROUNDING)
    lowest = np.maximum(np.ceil(floor), 1.0)
    contract = _with_margin(inputs, lowest, error)
    if expected_total(inputs, contract) > budget * (1.0 + ROUNDING):
        raise _too_dear(inputs, contract)
    low = (
        float(clients.labeling_cost.sum())
        + len(clients) * inputs.prices.margin
        + inner(batch_price(clients, training), lowest)
    )
    best, high = lowest, budget
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        batches = optimal_batch_sizes(
            clients, model, training, loss_value=inputs.prices.loss_value, budget=middle, margin=inputs.prices.margin
        ).astype(float)
        if expected_total(inputs, _with_margin(inputs, batches, error)) <= budget:
            best, low = batches, middle
        else:
            high = middle
    return best


def _too_dear(inputs: PlanInputs, contract: LCEME) -> InfeasibleError:
    budget, confidence = inputs.prices.budget, inputs.prices.confidence
    assert budget is not None
    total = expected_total(inputs, contract)
    return InfeasibleError(
        f"budget is {budget:g}; with margins for a confidence of {confidence:g}, even small batches are paid "
        f"{total:.12g}, {total - budget:g} more: raise the budget to {rounded_up(total):.10g}, lower the confidence, "
        "or leave clients out."
    )
