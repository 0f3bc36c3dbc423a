"""What a planned contract pays beside what the work costs, and the limits of the job: per person, and the budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from truthfl.errors import InputError
from truthfl.federation.protocol.promise import Promise
from truthfl.job import ServerSettings
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.observation import Observation
from truthfl.mechanism.setting import batch_price

ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class PlannedPay:
    """Of each client, in the job's money: cost of honest work, expected pay, and the pay that the job limits.

    limited  her cap, or expected pay under a contract without caps
    factor   the most that `limited` may be, as a multiple of cost
    """

    cost: FloatArray
    expected: FloatArray
    limited: FloatArray
    factor: float

    @property
    def too_much(self) -> np.ndarray:
        """(clients,) whether an offer would pay more than the job allows."""
        return np.asarray(~(self.limited <= self.factor * self.cost * (1.0 + ROUNDING)))


def planned_pay(promise: Promise, server: ServerSettings) -> PlannedPay:
    """What the promise pays and costs."""
    clients, contract = promise.clients, promise.contract
    computing = batch_price(clients, promise.training) * contract.batch_size
    alone = np.asarray(promise.audition_cost or 0.0, dtype=float)
    expected = np.asarray(contract.pay(Observation(promise.expected_loss)), dtype=float)
    capped = contract.has_cap
    return PlannedPay(
        cost=np.asarray(clients.labeling_cost + alone + computing),
        expected=expected,
        limited=contract.pay_range(0.0, promise.expected_loss)[1] if capped else expected,
        factor=server.most_pay if capped else server.most_expected_pay,
    )


def require_within_limits(promise: Promise, server: ServerSettings) -> None:
    """Raise `InputError` if an offer would pay more than the job allows, or all together more than its budget."""
    pay = planned_pay(promise, server)
    if pay.too_much.any():
        who = int(np.argmax(pay.too_much))
        raise InputError(f"{promise.clients.label(who)}: {too_much_in_words(promise, pay, who)}.")
    if server.budget is None:
        return
    bounds_caps = server.budget_bounds == "caps"
    if bounds_caps and not promise.contract.has_cap:
        raise InputError(
            f'budget_bounds is "caps", and pay under the contract {promise.contract.kind!r} has no cap; with '
            '"expected" the budget bounds expected pay.'
        )
    total = float((pay.limited if bounds_caps else pay.expected).sum())
    if total > server.budget * (1.0 + ROUNDING):
        what = "the caps add up to" if bounds_caps else "expected pay is"
        raise InputError(f"budget is {server.budget:g}; {what} {total:,.2f}: raise the budget, or leave clients out.")


def too_much_in_words(promise: Promise, pay: PlannedPay, client: int) -> str:
    """Why this client gets no offer."""
    what, field = ("up to", "most_pay") if promise.contract.has_cap else ("an expected", "most_expected_pay")
    return (
        f"an offer would pay {what} {pay.limited[client]:,.2f} for work that costs {pay.cost[client]:,.2f}, and "
        f"{field} allows {pay.factor:g} times the cost"
    )
