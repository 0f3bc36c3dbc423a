"""What the work of a plan is worth to the operator, what it costs and what it pays; warnings where it pays much."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from truthfl.mechanism.checks import FloatArray

WARN_PAY_OVER_COST = 3.0
WARN_PAY_OVER_WORTH = 1.0


@dataclass(frozen=True)
class WarnFactors:
    """Above which multiple of the cost, and of the worth, expected pay is warned of."""

    over_cost: float = WARN_PAY_OVER_COST
    over_worth: float = WARN_PAY_OVER_WORTH


@dataclass(frozen=True)
class PlanEconomics:
    """The sums of a plan, in the job's money.

    clients              how many are asked
    worth                of all work together: loss_value times (the loss without any of it − the expected loss); None
                         if the loss without it is not known
    untrained_loss       the loss without it, which is that of a model that nobody trained; None if not known
    separate_worth       the sum of what each client's work adds to that of the others; None if not known
    cost                 of honest work
    expected_pay         if all are honest
    most_pay             the sum of all caps; under a contract without caps, pay for a loss of 0; None if not known
    has_cap              whether pay has caps
    paid_over_own_worth  how many are expected to be paid more than `warn_pay_over_worth` times what their own work adds
                         to that of the others; None if not known
    warn_pay_over_cost, warn_pay_over_worth
                         multiples of cost and of worth above which expected pay is warned of
    places               with how many decimal places amounts are shown
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
        """Why the operator should think again before she makes these offers; nothing if pay is within the factors."""
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
        """How many are paid more than their own work adds to that of the others, if any."""
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
    """The sums of arrays over clients; `own_worth` is what each one's work adds to that of the others."""
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
        else int(np.count_nonzero(expected_pay > limits.over_worth * own_worth)),
        warn_pay_over_cost=limits.over_cost,
        warn_pay_over_worth=limits.over_worth,
        places=places,
    )


def _times(factor: float) -> str:
    return "" if factor == 1.0 else f"{factor:g} times "
