"""Contributions of clients to the drop of the loss: leave-one-out and Shapley values.

They are computed from any function from coalitions to losses: that of a loss model (below), or one that trains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import factorial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.mechanism.checks import FloatArray, number, whole_number
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.observation import CONTRIBUTIONS, Evidence, Observation
from truthfl.mechanism.strategies import Strategies

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
    """Losses of coalitions on a loss model, on which each member lowers the loss by her own drop.

    In such a game both leave-one-out and Shapley value are that drop, for any number of clients.
    """

    loss_with_all: float
    drop: FloatArray

    def __call__(self, members: NDArray[np.bool_]) -> FloatArray:
        return self.loss_with_all + np.asarray(np.where(members, 0.0, self.drop).sum(axis=-1), dtype=float)


def model_coalition_loss(model: LossModel, strategies: Strategies) -> ModelCoalitionLoss:
    """The coalition game of one profile on the loss model: an absent client is one whose report is empty, γ_i = 0.

    With γ_i = 0 neither her batches nor her labels reach the model, so of her bracket of the gap only g_i is left
    (docs/mechanism.md, section 6), and her drop is g_i minus her bracket.
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

    Exact over all 2^N coalitions for N ≤ 12; beyond, the mean over random orders of arrival, with its standard error.
    """
    if isinstance(coalition_loss, ModelCoalitionLoss):
        return Shapley(coalition_loss.drop, np.zeros(count))
    if count <= EXACT_UP_TO:
        return Shapley(_exact(coalition_loss, count), np.zeros(count))
    whole_number("permutations", permutations, at_least=2)
    return _monte_carlo(coalition_loss, count, permutations, seed)


def observe(
    rule: Mechanism,
    *,
    test_loss: float,
    claimed_batch_size: ArrayLike,
    coalition_loss: CoalitionLoss | None = None,
    permutations: int = 1000,
    seed: int = 0,
) -> Observation:
    """The observation of one job, with the contributions that this rule needs."""
    test_loss = number("test_loss", test_loss)
    wanted = rule.needs & CONTRIBUTIONS
    if not wanted:
        return Observation(test_loss, claimed_batch_size)
    if len(wanted) > 1:
        raise InputError(f"{rule.name} pays by two kinds of contributions; it must pay by one.")
    if coalition_loss is None:
        raise InputError(f"{rule.name} pays by {next(iter(wanted)).value}; give coalition_loss to measure them.")
    count = len(rule.batch_size)
    if Evidence.LEAVE_ONE_OUT in wanted:
        contribution, error = leave_one_out_drops(coalition_loss, count), np.zeros(count)
    else:
        shapley = shapley_drops(coalition_loss, count, permutations=permutations, seed=seed)
        contribution, error = shapley.drop, shapley.standard_error
    total = float(np.maximum(contribution, 0.0).sum())
    return Observation(test_loss, claimed_batch_size, contribution, total, contribution_error=error)


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
