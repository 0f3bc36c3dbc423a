"""Payoffs of participants and of the server; worth, cost and pay of a plan's work.

docs/mechanism.md, sections 1 and 3.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from truthfl.contracts import formulas
from truthfl.contracts.baselines import model_coalition_loss, observe
from truthfl.contracts.contract import Contract
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.setting import Clients, FloatArray, Strategies, Training, batch_price, number, whole_number
from truthfl.errors import InputError


def require_same_clients(contract: Contract, clients: Clients, model: LossModel) -> None:
    """Raise `InputError` unless contract, clients and loss model have the same number of clients."""
    asked = len(np.atleast_1d(contract.batch_size))
    if not asked == len(clients) == len(model):
        raise InputError(
            f"{contract.name} is for {asked} clients, the loss model for {len(model)}, and there are {len(clients)}; "
            "all three must be the same."
        )


def work_cost(clients: Clients, training: Training, strategies: Strategies) -> FloatArray:
    """c_l e_i + T q_i c_p D_i, the cost of each client's real work."""
    price = batch_price(clients, training)
    cost: FloatArray = formulas.work_cost(
        clients.labeling_cost, strategies.labeling_effort, price, strategies.batch_size
    )
    return cost


def pay_on_model(
    contract: Contract,
    model: LossModel,
    strategies: Strategies | None = None,
    *,
    test_loss: float | None = None,
) -> FloatArray:
    """The contract's pay to each client at the expected loss of the model, or at `test_loss`."""
    profile = Strategies.truthful(contract.batch_size) if strategies is None else strategies
    if profile.batch_size.shape != (len(model),):
        raise InputError(
            f"strategies have shape {profile.batch_size.shape}; they must be one profile of {len(model)} clients."
        )
    loss = float(model.expected_loss(profile)) if test_loss is None else number("test_loss", test_loss)
    observation = observe(
        contract,
        test_loss=loss,
        claimed_batch_size=profile.claimed_batch_size,
        coalition_loss=model_coalition_loss(model, profile),
    )
    return contract.pay(observation)


def client_payoff(
    contract: Contract,
    clients: Clients,
    model: LossModel,
    training: Training,
    strategies: Strategies | None = None,
    *,
    test_loss: float | None = None,
) -> FloatArray:
    """u_i = r_i − c_l e_i − T q_i c_p D_i for every client.

    All clients are honest unless `strategies` is given. At the expected loss unless `test_loss` is given.
    """
    require_same_clients(contract, clients, model)
    profile = Strategies.truthful(contract.batch_size) if strategies is None else strategies
    return pay_on_model(contract, model, profile, test_loss=test_loss) - work_cost(clients, training, profile)


def server_payoff(
    contract: Contract,
    model: LossModel,
    strategies: Strategies | None = None,
    *,
    loss_value: float = 1.0,
    test_loss: float | None = None,
) -> float:
    """u_0 = −κ f(w_T, ξ) − Σ r_i, at the expected loss unless `test_loss` is given."""
    kappa = number("loss_value", loss_value, positive=True)
    profile = Strategies.truthful(contract.batch_size) if strategies is None else strategies
    loss = float(model.expected_loss(profile)) if test_loss is None else number("test_loss", test_loss)
    return -kappa * loss - float(np.sum(pay_on_model(contract, model, profile, test_loss=loss)))


@dataclass(frozen=True)
class WarnFactors:
    """Multiples of the work's cost, and of its worth to the operator, above which expected pay causes a warning."""

    warn_pay_over_cost: float = 3.0
    warn_pay_over_worth: float = 1.0

    def __post_init__(self) -> None:
        for name in ("warn_pay_over_cost", "warn_pay_over_worth"):
            number(name, getattr(self, name), positive=True)


@dataclass(frozen=True)
class PlanEconomics:
    """The sums of a plan, in the job's money.

    clients              number of clients asked
    worth                of all work together: loss_value times (the loss without any work − the expected loss); None
                         if the loss without it is not known
    untrained_loss       the loss without work, of a model that nobody trained; None if not known
    separate_worth       the sum of what each client's work adds to the others' work; None if not known
    cost                 of honest work
    expected_pay         if all are honest
    most_pay             the sum of all caps; under a contract without caps, pay for a loss of 0; None if not known
    has_cap              whether pay has caps
    paid_over_own_worth  how many are expected to be paid more than `warn_pay_over_worth` times what their own work adds
                         to the others' work; None if not known
    warn_pay_over_cost, warn_pay_over_worth
                         multiples of cost and of worth above which expected pay causes a warning
    places               number of decimal places of amounts
    """

    clients: int
    worth: float | None
    untrained_loss: float | None
    separate_worth: float | None
    cost: float
    expected_pay: float
    most_pay: float | None
    has_cap: bool
    paid_over_own_worth: int | None
    warn_pay_over_cost: float
    warn_pay_over_worth: float
    places: int

    @property
    def pay_over_cost(self) -> float:
        """Expected pay as a multiple of cost."""
        return self.expected_pay / self.cost

    @property
    def worth_and_cost(self) -> str:
        """What all work is worth and costs, in words."""
        start = (
            ""
            if self.untrained_loss is None
            else f" (a model that nobody trained has a loss of {self.untrained_loss:.4f})"
        )
        worth = "" if self.worth is None else f"is worth {self._money(self.worth)} to you{start} and "
        return f"All work together {worth}costs {self._money(self.cost)}"

    @property
    def sentence(self) -> str:
        """What all work is worth, costs and pays, in words."""
        sentence = f"{self.worth_and_cost}; expected pay is {self._money(self.expected_pay)}"
        if self.most_pay is None:
            return f"{sentence}."
        most = self._money(self.most_pay)
        return f"{sentence}, at most {most}." if self.has_cap else f"{sentence}, for a loss of 0 it would be {most}."

    @property
    def warnings(self) -> list[str]:
        """Why the operator should reconsider before making these offers; empty if pay is within the factors."""
        found = []
        if self.expected_pay > self.warn_pay_over_cost * self.cost:
            found.append(
                f"Beware: expected pay is {self.pay_over_cost:,.2f} times what the work costs; warn_pay_over_cost is "
                f"{self.warn_pay_over_cost:g}. Compare other contracts, and fewer clients."
            )
        if self.worth is not None and self.expected_pay > self.warn_pay_over_worth * self.worth:
            times = _times(self.warn_pay_over_worth)
            found.append(
                f"Beware: expected pay, {self._money(self.expected_pay)}, is more than {times}what "
                f"all work together is worth to you, {self._money(self.worth)} (warn_pay_over_worth)."
            )
        return found

    @property
    def remarks(self) -> list[str]:
        """How many are paid more than their own work adds to the others' work, if any."""
        if not self.paid_over_own_worth:
            return []
        return [
            f"{self.paid_over_own_worth} of {self.clients} are paid more than {_times(self.warn_pay_over_worth)}"
            "what their own work adds to that of the others; a higher loss_value, or fewer clients, would change that."
        ]

    def _money(self, amount: float) -> str:
        return f"{amount:,.{self.places}f}"

    def document(self) -> dict[str, Any]:
        """All fields and the warnings as JSON values."""
        return asdict(self) | {"pay_over_cost": self.pay_over_cost, "warnings": self.warnings}


def plan_economics(
    *,
    cost: FloatArray,
    expected_pay: FloatArray,
    most_pay: FloatArray,
    has_cap: bool,
    own_worth: FloatArray | None = None,
    worth: float | None = None,
    untrained_loss: float | None = None,
    factors: WarnFactors | None = None,
    places: int = 2,
) -> PlanEconomics:
    """The sums of arrays over clients; `own_worth` is what each client's work adds to the others'."""
    limits = WarnFactors() if factors is None else factors
    most = float(most_pay.sum())
    return PlanEconomics(
        clients=len(cost),
        worth=worth,
        untrained_loss=untrained_loss,
        separate_worth=None if own_worth is None else float(own_worth.sum()),
        cost=float(cost.sum()),
        expected_pay=float(expected_pay.sum()),
        most_pay=most if math.isfinite(most) else None,
        has_cap=has_cap,
        paid_over_own_worth=None
        if own_worth is None
        else int(np.count_nonzero(expected_pay > limits.warn_pay_over_worth * own_worth)),
        warn_pay_over_cost=limits.warn_pay_over_cost,
        warn_pay_over_worth=limits.warn_pay_over_worth,
        places=places,
    )


def _times(factor: float) -> str:
    return "" if factor == 1.0 else f"{factor:g} times "


def pay_slope(contract: Contract) -> FloatArray:
    """Φ_i: pay that each client loses per unit of test loss; `InputError` if the contract is not linear in it."""
    linear = contract.linear()
    if linear is None:
        raise InputError(f"the pay of {contract.name} is not linear in the test loss; it has no slope.")
    return np.broadcast_to(np.asarray(linear.slope, dtype=float), np.shape(contract.batch_size))


def pay_standard_deviation(contract: Contract, loss_variance: float, *, test_samples: int = 1) -> FloatArray:
    """Φ_i √(Var f / m): the standard deviation of client i's pay when the loss is averaged over m test samples."""
    variance = number("loss_variance", loss_variance, at_least=0.0)
    samples = whole_number("test_samples", test_samples, at_least=1)
    return pay_slope(contract) * math.sqrt(variance / samples)


def samples_for_share(contract: Contract, expected_pay: ArrayLike, loss_variance: float, *, share: float) -> int:
    """The smallest number m of test samples at which no standard deviation of pay exceeds this share of the pay."""
    pay = np.asarray(expected_pay, dtype=float)
    if not (pay > 0).all():
        raise InputError("expected_pay is not positive for every client; a share of it is no measure then.")
    wanted = number("share", share, positive=True) * pay
    single = pay_standard_deviation(contract, loss_variance)
    return max(1, math.ceil(float(np.max(np.square(single / wanted))) * (1.0 - 1e-12)))


def confidence_margin(contract: Contract, standard_error: float, *, confidence: float = 0.95) -> FloatArray:
    """Φ_i z se: the margin that keeps honest pay at or above cost with this confidence,

    when gap + F̂* is an estimate with this standard error. Added to the base, it changes no incentive.
    """
    return pay_slope(contract) * covered_error(standard_error, confidence=confidence)


def covered_error(standard_error: float, *, confidence: float = 0.95) -> float:
    """z se: with this confidence, an estimate with this standard error is too low by no more than this."""
    error = number("standard_error", standard_error, at_least=0.0)
    chance = number("confidence", confidence)
    if not 0.5 <= chance < 1.0:
        raise InputError(f"confidence is {chance:g}; it must be a number from 0.5 up to, but not, 1.")
    return NormalDist().inv_cdf(chance) * error
