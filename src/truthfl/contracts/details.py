"""What a plan reports besides its terms: `PlanDetails`, one kind per contract, and the kind of most contracts.

Most contracts are planned on a loss model, measured (`LossModelDetails`) or stated. What they show is `ModelReport`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from truthfl.contracts.contract import Contract, CostDistribution, PlanInputs, Prices
from truthfl.contracts.deviation import Deviation, best_deviation, free_riding_gain, pay_resolution
from truthfl.contracts.lceme.assignment import labeling_floor
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.payoff import samples_for_share, server_payoff, work_cost
from truthfl.contracts.setting import Clients, FloatArray, Strategies, Training

if TYPE_CHECKING:
    from truthfl.contracts.planning import Plan

CERTAIN = 2.0  # standard errors by which a difference must exceed its error to be reported
ROWS_SHOWN = 40
HUNDREDTH = 0.01


@dataclass(frozen=True, eq=False)
class PlanWorth:
    """The worth of a plan's work, in the job's money.

    untrained_loss  the test loss of a model that nobody trained
    all_work        loss_value times (untrained_loss − the expected loss)
    own             (clients,) loss_value times the rise of the loss without one client's work
    own_error       standard error of `own`
    """

    untrained_loss: float
    all_work: float
    own: FloatArray
    own_error: FloatArray


@dataclass(frozen=True)
class PlanTable:
    """A table of cells; a row that begins with "total" has sums."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class PlanReport(Protocol):
    """The output of `truthfl plan`.

    cost, expected_pay  (clients,) of honest work
    """

    @property
    def cost(self) -> FloatArray: ...

    @property
    def expected_pay(self) -> FloatArray: ...

    def tables(self) -> list[PlanTable]:
        """The tables, the clients' first."""

    def sentences(self) -> list[str]:
        """What they mean."""

    def as_json(self) -> dict[str, Any]:
        """Everything as JSON values and arrays."""


class PlanDetails(Protocol):
    """How a plan was made, and what its contract reports about it.

    worth  (clients,) of each client's work to the server by the contract's own measure; None: as the pilot shows it
    """

    @property
    def worth(self) -> FloatArray | None: ...

    def warnings(self, plan: Plan, worth: PlanWorth) -> list[str]:
        """Objections to the plan."""

    def document(self, plan: Plan) -> dict[str, Any]:
        """How the plan was made, for its row in the ledger."""

    def report(self, plan: Plan, worth: PlanWorth, *, pictures: bool) -> PlanReport:
        """The report on it; `pictures`: whether the clients have pictures."""


@dataclass(frozen=True, eq=False)
class LossModelDetails:
    """For a plan on a measured loss model."""

    prices: Prices
    cost_distribution: CostDistribution | None
    worth: FloatArray | None = None

    def warnings(self, plan: Plan, worth: PlanWorth) -> list[str]:
        return [
            *worth_warnings(worth.own, worth.own_error, plan.cost),
            *idle_warnings(plan.contract, plan.clients, plan.loss_model, plan.training),
        ]

    def document(self, plan: Plan) -> dict[str, Any]:
        fitted = plan.calibration
        assert fitted is not None
        told: dict[str, Any] = {
            "calibration": {
                "r_squared": fitted.r_squared,
                "sampling_r_squared": fitted.sampling_r_squared,
                "factor": fitted.factor.tolist(),
                "standard_error": fitted.standard_error.tolist(),
            }
        }
        return told if plan.recipe is None else {**told, "audition": {"recipe": plan.recipe.document()}}

    def report(self, plan: Plan, worth: PlanWorth, *, pictures: bool) -> ModelReport:  # noqa: ARG002
        fitted, prices = plan.calibration, self.prices
        assert fitted is not None
        return ModelReport(
            plan.clients,
            plan.training,
            plan.loss_model,
            plan.contract,
            prices,
            plan.loss_variance,
            basis=f"calibrated, R² {fitted.sampling_r_squared:.3f}, step size {plan.training.step_size:.3g}",
            cost=plan.cost,
            worth=worth.own,
            worth_error=worth.own_error,
            cost_distribution=self.cost_distribution,
        )


@dataclass(frozen=True, eq=False)
class ModelReport:
    """The report on a plan based on a loss model, measured or stated.

    basis              the loss model in words
    cost               (clients,) of honest work
    worth, worth_error (clients,) what each client's work is worth to the server, in money, with its standard error
    cost_distribution  of private sample costs, as in `People`
    """

    clients: Clients
    training: Training
    model: LossModel
    contract: Contract
    prices: Prices
    loss_variance: float
    basis: str
    cost: FloatArray
    worth: FloatArray
    worth_error: FloatArray
    cost_distribution: CostDistribution | None = None

    @property
    def expected_loss(self) -> float:
        return self.model.truthful_loss(self.contract.batch_size)

    @cached_property
    def deviation(self) -> Deviation:
        """What each client gains at most by lying."""
        return best_deviation(self.contract, self.clients, self.model, self.training)

    @property
    def expected_pay(self) -> FloatArray:
        return self.deviation.honest_pay

    @cached_property
    def rent(self) -> FloatArray | None:
        """(clients,) pay above cost and margins that makes clients state their true costs; None if costs are known."""
        inputs = PlanInputs(
            self.clients,
            self.model,
            self.training,
            self.prices,
            cost_distribution=self.cost_distribution,
        )
        return type(self.contract).rents(inputs)

    @property
    def spread(self) -> FloatArray:
        """The standard deviation of each client's pay: half the difference of pay at loss ± one deviation."""
        return np.abs(self._difference(math.sqrt(self.loss_variance / self.prices.test_samples))) / 2.0

    @property
    def slope(self) -> FloatArray:
        """Pay that each client loses per unit of test loss, around the expected loss."""
        return self._difference(HUNDREDTH) / (2 * HUNDREDTH)

    def _difference(self, step: float) -> FloatArray:
        """Pay at the expected loss − step, less that at + step; NaN if pay needs evidence that jobs do not collect."""
        low, high = (self.contract.pay_at(self.expected_loss + sign * step) for sign in (-1, 1))
        return low - high

    def tables(self) -> list[PlanTable]:
        clients, contract, spread, slope = self.clients, self.contract, self.spread, self.slope
        floor, pay = labeling_floor(clients, self.model, self.training), self.expected_pay
        rows = [
            [
                str(i) if clients.name is None else clients.name[i],
                f"{clients.weight[i]:.4g}",
                f"{floor[i]:.1f}",
                f"{contract.batch_size[i]:.0f}",
                f"{self.cost[i]:,.2f}",
                f"{pay[i]:,.2f}",
                _number_or_dash(spread[i]),
                _number_or_dash(slope[i]),
                f"{self.worth[i]:,.0f}",
                f"{CERTAIN * self.worth_error[i]:,.0f}",
            ]
            for i in range(min(len(clients), ROWS_SHOWN))
        ]
        rows += more_rows(len(clients), 9)
        rows.append(["total", "", "", "", f"{self.cost.sum():,.2f}", f"{pay.sum():,.2f}", *[""] * 4])
        columns = ["client", "weight", "floor", "batch", "cost", "pay", "± pay", "slope", "worth", "±"]
        people = f"{len(clients)} client{'s' * (len(clients) > 1)}"
        return [PlanTable(f"Plan for {people}, {self.training.rounds} rounds", columns, rows)]

    def sentences(self) -> list[str]:
        contract, deviation, samples = self.contract, self.deviation, self.prices.test_samples
        left = server_payoff(contract, self.model, loss_value=self.prices.loss_value)
        found = [
            f"Expected loss {self.expected_loss:.4f} ({self.basis}); server's payoff {left:,.2f}.",
            "slope: pay lost per unit of test loss; worth: what the loss without them, minus the loss, costs the "
            "server.",
        ]
        known = bool(np.isfinite(self.spread).all()) and self.loss_variance > 0
        if known and (self.expected_pay > 0).all() and contract.linear() is not None:
            enough = samples_for_share(contract, self.expected_pay, self.loss_variance, share=0.1)
            found.append(
                f"± pay: standard deviation with {samples:,} test sample{'s' * (samples > 1)}; "
                f"it stays within a tenth of everybody's pay from {enough:,} on."
            )
        worst = float(np.max(np.where(deviation.gain > deviation.resolution, deviation.gain, 0.0)))
        evidence = "by search" if deviation.closed_form_gain is None else "formula and search disagree"
        evidence = "formula and search agree" if deviation.confirmed else evidence
        found.append(f"The most anybody gains by lying, on this loss model: {worst:.2f} ({evidence}).")
        if self.rent is not None:
            rents = ", ".join(
                f"{self.clients.label(i)} {rent:,.2f}" for i, rent in enumerate(self.rent[:ROWS_SHOWN].tolist())
            )
            found.append(
                "Costs are private. If everybody states the job's, the rents that make the true cost the best "
                f"statement, without the margin for errors of the loss, are {rents}."
            )
        return found

    def as_json(self) -> dict[str, Any]:
        clients, contract, deviation = self.clients, self.contract, self.deviation
        return {
            "clients": {
                "name": clients.name,
                "labeling_floor": labeling_floor(clients, self.model, self.training),
                "batch_size": contract.batch_size,
                **contract.terms(),
                "labeling_cost": clients.labeling_cost,
                "expected_pay": deviation.honest_pay,
                "pay_standard_deviation": [value if math.isfinite(value) else None for value in self.spread.tolist()],
                "expected_payoff": deviation.honest_payoff,
                "largest_gain_from_lying": deviation.gain,
                "gain_from_free_riding": free_riding_gain(contract, clients, self.model, self.training),
                "worth": self.worth,
                "worth_error": self.worth_error,
                **({} if self.rent is None else {"rent": self.rent}),
            },
            "contract": contract.kind,
            "expected_loss": self.expected_loss,
            "total_pay": float(deviation.honest_pay.sum()),
            "server_payoff": server_payoff(contract, self.model, loss_value=self.prices.loss_value),
            "confirmed_by_search": deviation.confirmed,
        }


def more_rows(count: int, empty: int) -> list[list[str]]:
    """A row with the number of clients that are not shown."""
    return [[f"… {count - ROWS_SHOWN} more", *[""] * empty]] if count > ROWS_SHOWN else []


def _number_or_dash(value: float) -> str:
    return f"{value:,.2f}" if math.isfinite(value) else "–"


def honest_cost(clients: Clients, training: Training, batch_size: FloatArray) -> FloatArray:
    """(clients,) The cost of each client's labels and rounds."""
    return work_cost(clients, training, Strategies.truthful(batch_size))


def idle_warnings(contract: Contract, clients: Clients, model: LossModel, training: Training) -> list[str]:
    """Which clients would gain by sending the model back unchanged."""
    gain = free_riding_gain(contract, clients, model, training)
    gainers = int((gain > pay_resolution(contract, clients, model, training)).sum())
    if not gainers:
        return []
    return [
        f"Beware: {gainers} of {len(clients)} would gain, up to {gain.max():,.2f}, "
        "by sending the model back unworked, if empty reports were paid (docs/mechanism.md, section 6)."
    ]


def worth_warnings(worth: FloatArray, error: FloatArray, cost: FloatArray) -> list[str]:
    """Whether each client's work is worth what it costs; (clients,) each, `error` the standard error of the worth."""
    below = worth + CERTAIN * error < cost
    unclear = ~below & (worth - CERTAIN * error < cost)
    found = []
    if below.any():
        found.append(
            f"Beware: the work of {below.sum()} of {len(cost)} clients is worth less to the server "
            f"({_range(worth[below])}) than it costs ({_range(cost[below])}). There, not working pays under a "
            "contract that pays by the joint loss with a slope of loss_value: ask fewer clients, or for less."
        )
    if unclear.any():
        found.append(f"Of {unclear.sum()} of {len(cost)} clients it is open whether their work is worth what it costs.")
    return found


def _range(values: FloatArray) -> str:
    low, high = f"{np.min(values):,.0f}", f"{np.max(values):,.0f}"
    return low if low == high else f"{low} to {high}"
