"""Contracts to compare with LCEME: flat pay, pay per claimed sample, leave-one-out, Shapley share.

Each is scaled so that the total honest pay is the total cost of honest work. The functions that make them have the
same signature as `lceme`. docs/mechanism.md, section 6.

They are computed from any function from coalitions to losses: of a loss model (below), or of training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.contract import (
    ALWAYS_COLLECTED,
    CONTRIBUTIONS,
    Contract,
    Contribution,
    Evidence,
    LinearPay,
    Observation,
    PlanInputs,
    delivered_share,
)
from truthfl.contracts.formulas import work_cost
from truthfl.contracts.loss_model import LossModel
from truthfl.contracts.setting import (
    Clients,
    FloatArray,
    Strategies,
    Training,
    batch_price,
    client_array,
    number,
    whole_number,
)
from truthfl.errors import InputError


@dataclass(frozen=True, eq=False)
class FlatPay(Contract):
    """A fixed amount for each client, whatever the test loss."""

    kind: ClassVar[str] = "flat"
    formula: ClassVar[str] = "pay = amount * delivered / asked, rounded to whole units"
    formula_keys: ClassVar[tuple[str, ...]] = ("terms.formula_flat",)

    batch_size: FloatArray
    amount: FloatArray
    name: str = "flat"

    @classmethod
    def plan(cls, inputs: PlanInputs) -> FlatPay:
        batches = inputs.best_batch_sizes()
        bare = flat_pay(inputs.clients, inputs.loss_model, inputs.training, batches)
        return FlatPay(batches, bare.amount + inputs.prices.margin)

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
class PayPerClaimedSample(Contract):
    """A price per sample that the client claims to have used, plus their labeling cost."""

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
class LeaveOneOutPay(Contract):
    """The same price for all clients, per unit by which the loss would be higher without the client."""

    kind: ClassVar[str] = "leave-one-out"
    needs: ClassVar[frozenset[Evidence]] = ALWAYS_COLLECTED | {Evidence.LEAVE_ONE_OUT}
    formula: ClassVar[str] = "pay = slope * (loss without the client - test_loss) * delivered / asked"

    batch_size: FloatArray
    slope: float | FloatArray
    name: str = "leave-one-out"

    @classmethod
    def plan(cls, inputs: PlanInputs) -> LeaveOneOutPay:
        return leave_one_out_pay(inputs.clients, inputs.loss_model, inputs.training, inputs.best_batch_sizes())

    def pay(self, observation: Observation) -> FloatArray:
        drop = np.asarray(_contribution(observation).own, dtype=float)
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
class ShapleySharePay(Contract):
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
        found = _contribution(observation)
        own, total = np.maximum(np.asarray(found.own, dtype=float), 0.0), np.asarray(found.total, dtype=float)
        share = np.zeros(np.broadcast(own, total).shape)
        np.divide(own, total, out=share, where=total > 0)
        return delivered_share(self.total * share * np.ones(np.shape(self.batch_size)), observation)

    def pay_range(self, lowest_loss: float, highest_loss: float) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        most = np.broadcast_to(np.asarray(self.total, dtype=float), np.shape(self.batch_size))
        return np.zeros_like(most), most

    def explanation(self, money: Callable[[float], str]) -> list[str]:
        total = money(float(np.ravel(self.total)[0]))
        return [f"{total} are shared out among all, in proportion to how much each lowered the test loss."]


def _contribution(observation: Observation) -> Contribution:
    if observation.contribution is None:
        raise InputError("the contract pays by contributions, and none are observed; `observe` measures them.")
    return observation.contribution


def flat_pay(clients: Clients, model: LossModel, training: Training, batch_size: ArrayLike) -> FlatPay:  # noqa: ARG001
    """Pay each client their cost of honest work."""
    batches, cost = _honest(clients, training, batch_size)
    return FlatPay(batches, cost)


def pay_per_claimed_sample(
    clients: Clients,
    model: LossModel,  # noqa: ARG001
    training: Training,
    batch_size: ArrayLike,
) -> PayPerClaimedSample:
    """Pay each client their own price for each claimed sample, and their labeling cost."""
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


CoalitionLoss = Callable[[NDArray[np.bool_]], FloatArray]
"""Membership of K coalitions (K, N) → the K losses of the models made from their reports alone."""

EXACT_UP_TO = 12
COALITIONS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Shapley:
    """Shapley values of the loss drop with their standard errors, which are 0 if the values are exact."""

    drop: FloatArray
    standard_error: FloatArray


@dataclass(frozen=True, eq=False)
class ModelCoalitionLoss:
    """Losses of coalitions on a loss model, on which each member lowers the loss by their own drop.

    In such a game both leave-one-out and Shapley value are that drop, for any number of clients.
    """

    loss_with_all: float
    drop: FloatArray

    def __call__(self, members: NDArray[np.bool_]) -> FloatArray:
        return self.loss_with_all + np.asarray(np.where(members, 0.0, self.drop).sum(axis=-1), dtype=float)


def model_coalition_loss(model: LossModel, strategies: Strategies) -> ModelCoalitionLoss:
    """The coalition game of one profile on the loss model: an absent client is one whose report is empty, γ_i = 0.

    With γ_i = 0 neither the client's batches nor their labels reach the model. So only g_i is left of their bracket of
    the gap (docs/mechanism.md, section 6), and their drop is g_i minus their bracket.
    """
    own = model.own_gap(strategies.labeling_effort, strategies.batch_size, strategies.report_scale)
    return ModelCoalitionLoss(float(model.expected_loss(strategies)), model.reporting - own)


def leave_one_out_drops(coalition_loss: CoalitionLoss, count: int) -> FloatArray:
    """Loss without client i minus loss with all clients, for every i."""
    if isinstance(coalition_loss, ModelCoalitionLoss):
        return coalition_loss.drop
    members = np.ones((count + 1, count), dtype=bool)
    members[np.arange(count), np.arange(count)] = False
    losses = coalition_loss(members)
    drop: FloatArray = losses[:-1] - losses[-1]
    return drop


def shapley_drops(coalition_loss: CoalitionLoss, count: int, *, permutations: int = 1000, seed: int = 0) -> Shapley:
    """Client i's Shapley share of the drop from the loss without clients to the loss with all.

    Exact over all 2^N coalitions for N ≤ 12. For larger N: the mean over random orders of arrival, with its standard
    error.
    """
    if isinstance(coalition_loss, ModelCoalitionLoss):
        return Shapley(coalition_loss.drop, np.zeros(count))
    if count <= EXACT_UP_TO:
        return Shapley(_exact(coalition_loss, count), np.zeros(count))
    whole_number("permutations", permutations, at_least=2)
    return _monte_carlo(coalition_loss, count, permutations, seed)


def observe(
    contract: Contract,
    *,
    test_loss: float,
    claimed_batch_size: ArrayLike,
    coalition_loss: CoalitionLoss | None = None,
    permutations: int = 1000,
    seed: int = 0,
) -> Observation:
    """The observation of one job, with the contributions that this contract needs."""
    test_loss = number("test_loss", test_loss)
    wanted = contract.needs & CONTRIBUTIONS
    if not wanted:
        return Observation(test_loss, claimed_batch_size=claimed_batch_size)
    if len(wanted) > 1:
        raise InputError(f"{contract.name} pays by two kinds of contributions; it must pay by one.")
    if coalition_loss is None:
        raise InputError(f"{contract.name} pays by {next(iter(wanted)).value}; give coalition_loss to measure them.")
    count = len(contract.batch_size)
    if Evidence.LEAVE_ONE_OUT in wanted:
        drop, error = leave_one_out_drops(coalition_loss, count), np.zeros(count)
    else:
        shapley = shapley_drops(coalition_loss, count, permutations=permutations, seed=seed)
        drop, error = shapley.drop, shapley.standard_error
    contribution = Contribution(drop, float(np.maximum(drop, 0.0).sum()), error)
    return Observation(test_loss, claimed_batch_size=claimed_batch_size, contribution=contribution)


def _exact(coalition_loss: CoalitionLoss, count: int) -> FloatArray:
    codes = np.arange(1 << count)
    members = (codes[:, None] >> np.arange(count) & 1).astype(bool)
    losses = coalition_loss(members)
    sizes = members.sum(axis=1)
    orders = np.array([factorial(s) * factorial(count - s - 1) / factorial(count) for s in range(count)])
    drops = np.empty(count)
    for client in range(count):
        without = codes[~members[:, client]]
        drops[client] = orders[sizes[without]] @ (losses[without] - losses[without | (1 << client)])
    return drops


def _monte_carlo(coalition_loss: CoalitionLoss, count: int, permutations: int, seed: int) -> Shapley:
    generator = np.random.default_rng(seed)
    at_once = max(1, COALITIONS_AT_ONCE // (count + 1))
    drops = np.empty((permutations, count))
    for start in range(0, permutations, at_once):
        rows = min(at_once, permutations - start)
        order = generator.permuted(np.tile(np.arange(count), (rows, 1)), axis=1)
        arrival = np.argsort(order, axis=1)
        members = arrival[:, None, :] < np.arange(count + 1)[None, :, None]
        losses = coalition_loss(members.reshape(-1, count)).reshape(rows, count + 1)
        marginal = losses[:, :-1] - losses[:, 1:]
        drops[start : start + rows] = np.take_along_axis(marginal, arrival, axis=1)
    error = drops.std(axis=0, ddof=1) / np.sqrt(permutations)
    return Shapley(drops.mean(axis=0), error)
