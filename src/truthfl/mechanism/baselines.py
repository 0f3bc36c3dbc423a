"""Other ways of paying, to compare with: flat, per claimed sample, by leave-one-out, by Shapley share.

Each is a `PaymentRule`, scaled so that in all honest clients are paid what honest work costs. Looks at `setting`,
`loss_model`, `observation` and `payoff`'s costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray, client_array
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.observation import Measure, Observation
from truthfl.mechanism.setting import Clients, Training, batch_price


@dataclass(frozen=True, eq=False)
class FlatPay:
    """Everybody gets a fixed amount, whatever happens."""

    batch_size: FloatArray
    amount: FloatArray
    name: str = "flat"
    measure: Measure | None = None
    claim_rate: float = 0.0
    slope: float = 0.0

    def pay(self, seen: Observation) -> FloatArray:
        shape = np.broadcast(np.asarray(seen.test_loss), self.amount).shape
        return np.broadcast_to(self.amount, shape)


@dataclass(frozen=True, eq=False)
class PayPerClaimedSample:
    """A price per sample that the client says she used, and her labeling cost on top."""

    batch_size: FloatArray
    claim_rate: FloatArray
    labeling_cost: FloatArray
    name: str = "per claimed sample"
    measure: Measure | None = None
    slope: float = 0.0

    def pay(self, seen: Observation) -> FloatArray:
        claimed = np.asarray(seen.claimed_batch_size, dtype=float)
        pay: FloatArray = self.claim_rate * claimed + self.labeling_cost
        return pay


@dataclass(frozen=True, eq=False)
class LeaveOneOutPay:
    """The same price for everybody per unit by which the loss would be higher without her."""

    batch_size: FloatArray
    slope: float
    name: str = "leave-one-out"
    measure: Measure | None = Measure.LEAVE_ONE_OUT
    claim_rate: float = 0.0

    def pay(self, seen: Observation) -> FloatArray:
        return self.slope * np.asarray(seen.contribution, dtype=float)


@dataclass(frozen=True, eq=False)
class ShapleySharePay:
    """A fixed sum, shared out in proportion to Shapley values of the loss drop; negative ones count as 0."""

    batch_size: FloatArray
    total: float
    name: str = "shapley share"
    measure: Measure | None = Measure.SHAPLEY

    def pay(self, seen: Observation) -> FloatArray:
        own = np.maximum(np.asarray(seen.contribution, dtype=float), 0.0)
        everybody = np.asarray(seen.total_contribution, dtype=float)
        share = np.zeros(np.broadcast(own, everybody).shape)
        np.divide(own, everybody, out=share, where=everybody > 0)
        return self.total * share


def flat_pay(clients: Clients, training: Training, batch_size: ArrayLike) -> FlatPay:
    """Pays each client what honest work costs her."""
    batches, cost = _honest(clients, training, batch_size)
    return FlatPay(batches, cost)


def pay_per_claimed_sample(clients: Clients, training: Training, batch_size: ArrayLike) -> PayPerClaimedSample:
    """Pays each client her own price for each sample she claims."""
    batches, _ = _honest(clients, training, batch_size)
    return PayPerClaimedSample(batches, batch_price(clients, training), clients.labeling_cost)


def leave_one_out_pay(clients: Clients, model: LossModel, training: Training, batch_size: ArrayLike) -> LeaveOneOutPay:
    """Pays, in all, what honest work costs in all, when everybody is honest."""
    batches, cost = _honest(clients, training, batch_size)
    drop = float((model.reporting - model.sampling / batches).sum())
    if drop <= 0:
        raise InputError(
            f"honest clients together lower the loss by {drop:g} on this loss model; leave-one-out pay needs it to be "
            "positive."
        )
    return LeaveOneOutPay(batches, float(cost.sum()) / drop)


def shapley_share_pay(clients: Clients, training: Training, batch_size: ArrayLike) -> ShapleySharePay:
    """Shares out, whatever happens, what honest work costs in all."""
    batches, cost = _honest(clients, training, batch_size)
    return ShapleySharePay(batches, float(cost.sum()))


def _honest(clients: Clients, training: Training, batch_size: ArrayLike) -> tuple[FloatArray, FloatArray]:
    batches = client_array("batch_size", batch_size, len(clients), clients.label, positive=True)
    return batches, clients.labeling_cost + batch_price(clients, training) * batches
