"""Gains from lies under a payment rule, with confidence intervals, computed from the losses of paired training runs.

Imports `learning.behaviour`, `learning.behaviours` and `mechanism`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import t as student

from truthfl.errors import InputError
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.behaviours import TRUTHFUL
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.mechanism import Mechanism
from truthfl.mechanism.observation import Evidence, Observation
from truthfl.mechanism.setting import Clients, Training, batch_price

SMALLEST_STEP = 1e-9  # lower limit of the step by which the slope of Shapley pay is computed


@dataclass(frozen=True, eq=False)
class Losses:
    """Test losses of runs in which one client lies; NaN for runs that were not made.

    loss     (1 + lies, seeds) of runs with all clients; row 0 is the truth
    without  (seeds,) of runs without her

    For Shapley pay, with one random coalition of other clients per seed:

    joined   (1 + lies, seeds) of runs of the coalition with her
    alone    (seeds,) of runs of the coalition without her
    nobody   (seeds,) of the initial model
    """

    loss: FloatArray
    without: FloatArray
    joined: FloatArray
    alone: FloatArray
    nobody: FloatArray

    def with_empty_report(self) -> Losses:
        """The same losses with the empty report as the only lie, which has the losses of the runs without her."""
        return replace(self, loss=np.stack((self.loss[0], self.without)), joined=np.stack((self.joined[0], self.alone)))


@dataclass(frozen=True, eq=False)
class Gains:
    """One client's gains under one rule, one value per lie, as shares of her honest pay or cost, whichever is larger.

    share             mean gain
    low, high         95% interval of the gain
    simultaneous_low  lower end of an interval that holds with 95% for all compared lies at once (Bonferroni)
    pay, cost         her honest pay and the cost of honest work, in money
    money             mean gain in money
    """

    share: FloatArray
    low: FloatArray
    high: FloatArray
    simultaneous_low: FloatArray
    pay: float
    cost: float
    money: FloatArray

    @property
    def cost_factor(self) -> float:
        """The factor that converts `share` to a share of the cost of honest work."""
        return max(self.pay, self.cost) / self.cost


def gains(
    rule: Mechanism,
    clients: Clients,
    training: Training,
    client: int,
    lies: Sequence[Behaviour],
    losses: Losses,
    *,
    looks: int,
    compared: int = 1,
    empty_is_paid: bool = False,
) -> Gains:
    """The gains of one client's lies over honest work, from runs with the same draws.

    looks          number of times that intervals are computed as runs are added; they are widened accordingly
    compared       number of lies that `simultaneous_low` holds for at once
    empty_is_paid  whether an empty report is paid like any other; by default it is not paid

    If the rule pays by claims, a liar claims to have used all her data.
    """
    assigned, owned = float(rule.batch_size[client]), float(clients.dataset_size[client])
    paid = _pay(rule, client, losses, assigned, owned)
    if not empty_is_paid:
        empty = np.array([lie.reports_nothing for lie in lies], dtype=bool)
        paid[1:][empty] = np.where(np.isnan(paid[1:][empty]), np.nan, 0.0)
    labeling, price = float(clients.labeling_cost[client]), float(batch_price(clients, training)[client])
    cost = TRUTHFUL.cost(labeling, price, assigned)
    saved = cost - np.array([lie.cost(labeling, price, assigned, at_most=owned) for lie in lies])
    money = paid[1:] - paid[0] + saved[:, None]
    times = np.sum(~np.isnan(money), axis=1)
    mean = np.nansum(money, axis=1) / np.maximum(times, 1)
    spread = np.sqrt(np.nansum(np.square(money - mean[:, None]), axis=1) / np.maximum(times - 1, 1) / times)
    half_width, wide_half_width = (
        student.ppf(1.0 - 0.025 / n, np.maximum(times - 1, 1)) * spread for n in (looks, looks * compared)
    )
    pay = float(np.nanmean(paid[0]))
    scale = max(pay, cost)
    return Gains(
        share=mean / scale,
        low=(mean - half_width) / scale,
        high=(mean + half_width) / scale,
        simultaneous_low=(mean - wide_half_width) / scale,
        pay=pay,
        cost=cost,
        money=mean,
    )


def _pay(rule: Mechanism, client: int, losses: Losses, assigned: float, owned: float) -> FloatArray:
    """Her pay, (1 + lies, seeds); NaN for runs that were not made."""
    claimed = np.full(losses.loss.shape, owned)
    claimed[0] = assigned
    if Evidence.SHAPLEY in rule.needs:
        return _shapley_pay(rule, client, losses, claimed)
    return _paid(rule, client, losses.loss, claimed, losses.without - losses.loss, np.nan)


def _shapley_pay(rule: Mechanism, client: int, losses: Losses, claimed: FloatArray) -> FloatArray:
    """Her pay at her mean contribution, plus the slope of pay times each seed's deviation from the mean.

    The contribution in one coalition per seed is very noisy, so pay is linearized around the mean contribution. The
    total of all contributions is the drop from the initial model's loss to the loss with all clients.
    """
    gained = losses.alone - losses.joined
    mean = np.nanmean(gained, axis=1)[:, None]
    total = np.nanmean(losses.nobody - losses.loss, axis=1)[:, None]
    step = np.maximum(np.nanstd(gained, axis=1), SMALLEST_STEP)[:, None]

    def at(contribution: FloatArray) -> FloatArray:
        return _paid(rule, client, losses.loss, claimed, contribution, total)

    above = np.maximum(mean, 0.0)
    slope = (at(above + step) - at(above)) / step
    paid: FloatArray = at(mean) + slope * (gained - mean)
    return paid


def _paid(
    rule: Mechanism,
    client: int,
    loss: FloatArray,
    claimed: FloatArray,
    contribution: FloatArray,
    total: FloatArray | float,
) -> FloatArray:
    """The rule's pay to her in each run; NaN for runs that were not made."""
    shape = (*loss.shape, len(np.atleast_1d(rule.batch_size)))
    parts = (np.broadcast_to(values, loss.shape)[..., None] for values in (loss, claimed, contribution, total))
    pay = np.asarray(rule.pay(Observation(*(np.broadcast_to(part, shape) for part in parts))), dtype=float)
    if pay.shape != shape:
        raise InputError(f"mechanism {rule.kind!r} pays an array of shape {pay.shape}; it must be {shape}.")
    own = np.where(np.isnan(loss), np.nan, pay[..., client])
    if not np.isfinite(own[np.isfinite(loss) & np.isfinite(contribution)]).all():
        raise InputError(f"mechanism {rule.kind!r} pays client {client} no finite amount.")
    return own


@dataclass(frozen=True)
class ElicitedEffort:
    """The best-response batch in real training as a share of the assigned one, with its 95% interval."""

    effort: float
    low: float
    high: float


def elicited_effort(
    rule: Mechanism,
    clients: Clients,
    training: Training,
    lies: Sequence[Behaviour],
    losses_of: Mapping[int, Losses],
) -> ElicitedEffort:
    """The batch that the rule elicits as a share of the assigned one: √ρ, where ρ is fitted to real pay.

    A client's pay depends on her batch as a − ν/D, so her best response is √(ν/price) = √ρ D' with ρ = ν/(price D'²).
    One ρ is fitted to the paired differences of pay of all clients, weighted by their inverse variances. NaN if no lie
    changes only the batch.
    """
    only_batch = [k for k, lie in enumerate(lies) if lie.labeling_effort == 1 and lie.report_scale == 1]
    price = batch_price(clients, training)
    x, y, weight, limits = [], [], [], []
    for client, losses in losses_of.items():
        assigned, owned = float(rule.batch_size[client]), float(clients.dataset_size[client])
        limits.append((1.0 / assigned, owned / assigned))
        paid = _pay(rule, client, losses, assigned, assigned)
        for k in only_batch:
            change = paid[k + 1] - paid[0]
            change = change[~np.isnan(change)]
            if len(change) < 2:
                continue
            x.append((1.0 / lies[k].batch_size(assigned, at_most=owned) - 1.0 / assigned) * price[client] * assigned**2)
            y.append(-float(change.mean()))
            weight.append(len(change) / max(float(change.var(ddof=1)), 1e-18))
    if not x:
        return ElicitedEffort(np.nan, np.nan, np.nan)
    x_, y_, w = (np.array(values) for values in (x, y, weight))
    information = float((w * x_ * x_).sum())
    ratio, error = float((w * x_ * y_).sum()) / information, 1.96 / np.sqrt(information)
    least, most = np.mean(limits, axis=0)
    effort, low, high = (
        float(np.clip(np.sqrt(max(value, 0.0)), least, most)) for value in (ratio, ratio - error, ratio + error)
    )
    return ElicitedEffort(effort, low, high)
