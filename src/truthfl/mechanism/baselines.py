"""Mechanisms to compare with LCEME: flat pay, pay per claimed sample, leave-one-out, Shapley share.

Each is scaled so that the total honest pay is the total cost of honest work. The functions that make them have the
signature of `lceme`. docs/mechanism.md, section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray, client_array
from truthfl.mechanism.formulas import work_cost
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.mechanism import LinearPay, Mechanism, PlanInputs, delivered_share
from truthfl.mechanism.observation import ALWAYS_COLLECTED, Evidence, Observation
from truthfl.mechanism.setting import Clients, Training, batch_price


@dataclass(frozen=True, eq=False)
class FlatPay(Mechanism):
    """A fixed amount for each client, whatever the test loss."""

    kind: ClassVar[str] = "flat"
    formula: ClassVar[str] = "pay = amount * delivered / asked, rounded to whole units"

    batch_size: FloatArray
    amount: FloatArray
    name: str = "flat"

    @classmethod
    def plan(cls, inputs: PlanInputs) -> FlatPay:
        batches = inputs.best_batch_sizes()
        bare = flat_pay(inputs.clients, inputs.loss_model, inputs.training, batches)
        return FlatPay(batches, bare.amount + inputs.margin)

    def pay(self, observation: Observation) -> FloatArray:
        shape = np.broadcast(np.asarray(observation.test_loss), self.amount).shape
        return delivered_share(np.broadcast_to(self.amount, shape), observation)

    def pay_range(self, lowest_loss: float, highest_loss: float) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        return self.amount, self.amount

    def explanation(self, money: Callable[[float], str]) -> list[str]:
        return [f"You are paid {money(float(self.amount[0]))}, however good the model becomes."]

    def linear(self) -> LinearPay:
        return LinearPay(0.0)


@dataclass(frozen=True, eq=False)
class PayPerClaimedSample(Mechanism):
    """A price per sample that the client claims to have used, plus her labeling cost."""

    kind: ClassVar[str] = "per claimed sample"
    needs: ClassVar[frozenset[Evidence]] = ALWAYS_COLLECTED | {Evidence.CLAIMED_BATCH}
    formula: ClassVar[str] = "pay = (claim_rate * claimed_batch_size + labeling_cost) * delivered / asked"

    batch_size: FloatArray
    claim_rate: FloatArray
    labeling_cost: FloatArray
    name: str = "per claimed sample"

    @classmethod
    def plan(cls, inputs: PlanInputs) -> PayPerClaimedSample:
        return pay_per_claimed_sample(inputs.clients, inputs.loss_model, inputs.training, inputs.best_batch_sizes())

    def pay(self, observation: Observation) -> FloatArray:
        claimed = np.asarray(observation.claimed_batch_size, dtype=float)
        pay: FloatArray = self.claim_rate * claimed + self.labeling_cost
        return delivered_share(pay, observation)

    def pay_range(self, lowest_loss: float, highest_loss: float) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        return self.labeling_cost, np.full_like(self.labeling_cost, np.inf)

    def explanation(self, money: Callable[[float], str]) -> list[str]:
        return [f"You are paid {money(float(self.claim_rate[0]))} for each sample that you say you used."]

    def linear(self) -> LinearPay:
        return LinearPay(0.0, self.claim_rate)


@dataclass(frozen=True, eq=False)
class LeaveOneOutPay(Mechanism):
    """The same price for all clients per unit by which the loss would be higher without her."""

    kind: ClassVar[str] = "leave-one-out"
    needs: ClassVar[frozenset[Evidence]] = ALWAYS_COLLECTED | {Evidence.LEAVE_ONE_OUT}
    formula: ClassVar[str] = "pay = slope * (loss without her - test_loss) * delivered / asked"

    batch_size: FloatArray
    slope: float | FloatArray
    name: str = "leave-one-out"

    @classmethod
    def plan(cls, inputs: PlanInputs) -> LeaveOneOutPay:
        return leave_one_out_pay(inputs.clients, inputs.loss_model, inputs.training, inputs.best_batch_sizes())

    def pay(self, observation: Observation) -> FloatArray:
        drop = np.asarray(observation.contribution, dtype=float)
        return delivered_share(self.slope * drop * np.ones(np.shape(self.batch_size)), observation)

    def pay_range(self, lowest_loss: float, highest_loss: float) -> tuple[FloatArray, FloatArray]:
        most = np.broadcast_to(np.asarray(self.slope * (highest_loss - lowest_loss)), np.shape(self.batch_size))
        return -most, most

    def explanation(self, money: Callable[[float], str]) -> list[str]:
        worth = float(np.ravel(self.slope)[0]) / 100
        return [f"You are paid {money(worth)} for each 0.01 by which the test loss would be higher without you."]

    def linear(self) -> LinearPay:
        return LinearPay(self.slope)


@dataclass(frozen=True, eq=False)
class ShapleySharePay(Mechanism):
    """A fixed sum, shared out in proportion to Shapley values of the loss drop; negative ones count as 0."""

    kind: ClassVar[str] = "shapley share"
    needs: ClassVar[frozenset[Evidence]] = ALWAYS_COLLECTED | {Evidence.SHAPLEY}
    formula: ClassVar[str] = "pay = total * max(shapley value, 0) / sum of all positive shapley values"

    batch_size: FloatArray
    total: float | FloatArray
    name: str = "shapley share"

    @classmethod
    def plan(cls, inputs: PlanInputs) -> ShapleySharePay:
        return shapley_share_pay(inputs.clients, inputs.loss_model, inputs.training, inputs.best_batch_sizes())

    def pay(self, observation: Observation) -> FloatArray:
        own = np.maximum(np.asarray(observation.contribution, dtype=float), 0.0)
        all_contributions = np.asarray(observation.total_contribution, dtype=float)
        share = np.zeros(np.broadcast(own, all_contributions).shape)
        np.divide(own, all_contributions, out=share, where=all_contributions > 0)
        return delivered_share(self.total * share * np.ones(np.shape(self.batch_size)), observation)

    def pay_range(self, lowest_loss: float, highest_loss: float) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        most = np.broadcast_to(np.asarray(self.total, dtype=float), np.shape(self.batch_size))
        return np.zeros_like(most), most

    def explanation(self, money: Callable[[float], str]) -> list[str]:
        total = money(float(np.ravel(self.total)[0]))
        return [f"{total} are shared out among all, in proportion to how much each lowered the test loss."]


def flat_pay(clients: Clients, model: LossModel, training: Training, batch_size: ArrayLike) -> FlatPay:  # noqa: ARG001
    """Pay each client her cost of honest work."""
    batches, cost = _honest(clients, training, batch_size)
    return FlatPay(batches, cost)


def pay_per_claimed_sample(
    clients: Clients,
    model: LossModel,  # noqa: ARG001
    training: Training,
    batch_size: ArrayLike,
) -> PayPerClaimedSample:
    """Pay each client her own price for each sample she claims, and her labeling cost."""
    batches, _ = _honest(clients, training, batch_size)
    return PayPerClaimedSample(batches, batch_price(clients, training), clients.labeling_cost)


def leave_one_out_pay(clients: Clients, model: LossModel, training: Training, batch_size: ArrayLike) -> LeaveOneOutPay:
    """The price at which the total pay is the total cost of work when all clients are honest."""
    batches, cost = _honest(clients, training, batch_size)
    drop = float((model.reporting - model.sampling / batches).sum())
    if drop <= 0:
        raise InputError(
            f"honest clients together lower the loss by {drop:g} on this loss model; leave-one-out pay needs it to be "
            "positive."
        )
    return LeaveOneOutPay(batches, float(cost.sum()) / drop)


def shapley_share_pay(
    clients: Clients,
    model: LossModel,  # noqa: ARG001
    training: Training,
    batch_size: ArrayLike,
) -> ShapleySharePay:
    """Share out the total cost of honest work, whatever the test loss."""
    batches, cost = _honest(clients, training, batch_size)
    return ShapleySharePay(batches, float(cost.sum()))


def _honest(clients: Clients, training: Training, batch_size: ArrayLike) -> tuple[FloatArray, FloatArray]:
    batches = client_array("batch_size", batch_size, len(clients), clients.label, positive=True)
    cost: FloatArray = work_cost(clients.labeling_cost, 1.0, batch_price(clients, training), batches)
    return batches, cost
