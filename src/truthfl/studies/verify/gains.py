"""What lies really gain: losses of paired training runs, turned into each rule's gains with confidence intervals.

Imports `learning.behaviour` and the mechanism's rules. Knows nothing of how runs are made.
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

SMALLEST_STEP = 1e-9  # of a contribution, where all coalitions gain the same


@dataclass(frozen=True, eq=False)
class Losses:
    """Of one client, NaN where a run was not made.

    loss     (1 + lies, seeds) with everybody, the truth first
    without  (seeds,) with everybody but her

    The others are for Shapley pay: what a coalition of others, one per seed, reaches.

    joined   (1 + lies, seeds) with her
    alone    (seeds,) without her
    nobody   (seeds,) the loss of the model as it starts
    """

    loss: FloatArray
    without: FloatArray
    joined: FloatArray
    alone: FloatArray
    nobody: FloatArray

    def of_an_empty_report(self) -> Losses:
        """With the empty report as the only lie: the others are left to themselves."""
        return replace(self, loss=np.stack((self.loss[0], self.without)), joined=np.stack((self.joined[0], self.alone)))


@dataclass(frozen=True, eq=False)
class Gains:
    """Of one client under one rule, per lie: mean gain and 95% interval, as a share of what honest work is paid.

    `surely` is the lower end of an interval so wide that all of those compared hold at once with 95%: the one to use
    when the best of many lies is to be found out, for among hundreds some always look good.
    Where that is less than honest work costs, as a share of the cost, for a share of nothing says nothing.
    """

    share: FloatArray
    low: FloatArray
    high: FloatArray
    surely: FloatArray
    pay: float
    cost: float
    money: FloatArray

    @property
    def of_cost(self) -> float:
        """What a share here is worth as a share of what honest work costs."""
        return max(self.pay, self.cost) / self.cost


def gains(
    rule: Mechanism,
    clients: Clients,
    training: Training,
    client: int,
    lies: Sequence[Behaviour],
    seen: Losses,
    *,
    looks: int,
    compared: int = 1,
    empty_is_paid: bool = False,
) -> Gains:
    """What each lie gains her over the truth, from runs with the same draws.

    An empty report is visible, and not paid unless asked so. Where a rule listens to claims, whoever lies claims all
    her data. Intervals are wide enough to hold at 95% although one looks up to `looks` times.
    """
    assigned, owned = float(rule.batch_size[client]), float(clients.dataset_size[client])
    paid = _pay(rule, client, seen, assigned, owned)
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
    reach, far = (student.ppf(1.0 - 0.025 / n, np.maximum(times - 1, 1)) * spread for n in (looks, looks * compared))
    pay = float(np.nanmean(paid[0]))
    scale = max(pay, cost)
    return Gains(
        share=mean / scale,
        low=(mean - reach) / scale,
        high=(mean + reach) / scale,
        surely=(mean - far) / scale,
        pay=pay,
        cost=cost,
        money=mean,
    )


def _pay(rule: Mechanism, client: int, seen: Losses, assigned: float, owned: float) -> FloatArray:
    """What she is paid, (1 + lies, seeds); NaN where no run was made."""
    claimed = np.full(seen.loss.shape, owned)
    claimed[0] = assigned
    if Evidence.SHAPLEY in rule.needs:
        return _shapley_pay(rule, client, seen, claimed)
    return _paid(rule, client, seen.loss, claimed, seen.without - seen.loss, np.nan)


def _shapley_pay(rule: Mechanism, client: int, seen: Losses, claimed: FloatArray) -> FloatArray:
    """Her pay at her mean contribution, and around it the scatter of what each seed's coalition gained by her.

    One coalition per seed says little about a contribution; their mean does. The scatter counts with the slope of pay
    in her contribution. All contributions together are the drop from nobody's loss to everybody's.
    """
    gained = seen.alone - seen.joined
    mean = np.nanmean(gained, axis=1)[:, None]
    total = np.nanmean(seen.nobody - seen.loss, axis=1)[:, None]
    step = np.maximum(np.nanstd(gained, axis=1), SMALLEST_STEP)[:, None]

    def at(contribution: FloatArray) -> FloatArray:
        return _paid(rule, client, seen.loss, claimed, contribution, total)

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
    """What the rule pays her in each run; NaN where no run was made."""
    shape = (*loss.shape, len(np.atleast_1d(rule.batch_size)))
    parts = (np.broadcast_to(one, loss.shape)[..., None] for one in (loss, claimed, contribution, total))
    pay = np.asarray(rule.pay(Observation(*(np.broadcast_to(part, shape) for part in parts))), dtype=float)
    if pay.shape != shape:
        raise InputError(f"mechanism {rule.kind!r} pays an array of shape {pay.shape}; it must be {shape}.")
    own = np.where(np.isnan(loss), np.nan, pay[..., client])
    if not np.isfinite(own[np.isfinite(loss) & np.isfinite(contribution)]).all():
        raise InputError(f"mechanism {rule.kind!r} pays client {client} no finite amount.")
    return own


@dataclass(frozen=True)
class Elicited:
    """Real best-response batch as a share of the assigned one, over all clients looked at, with its 95% interval."""

    effort: float
    low: float
    high: float


def elicited_effort(
    rule: Mechanism,
    clients: Clients,
    training: Training,
    lies: Sequence[Behaviour],
    seen: Mapping[int, Losses],
) -> Elicited:
    """How much computing the rule really elicits, √ρ, where ρ is fitted to real pay.

    Her pay varies with her real batch as a − ν/D, so her best response is √(ν/price), which is √ρ D' with
    ρ = ν/(price D'²); one ρ is fitted to all clients' paired differences of pay, each weighted by how sure it is.
    NaN where no lie changes the batch alone.
    """
    only_batch = [k for k, lie in enumerate(lies) if lie.labeling_effort == 1 and lie.report_scale == 1]
    price = batch_price(clients, training)
    x, y, weight, limits = [], [], [], []
    for client, losses in seen.items():
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
        return Elicited(np.nan, np.nan, np.nan)
    at, of, w = (np.array(one) for one in (x, y, weight))
    information = float((w * at * at).sum())
    ratio, error = float((w * at * of).sum()) / information, 1.96 / np.sqrt(information)
    least, most = np.mean(limits, axis=0)
    effort, low, high = (
        float(np.clip(np.sqrt(max(one, 0.0)), least, most)) for one in (ratio, ratio - error, ratio + error)
    )
    return Elicited(effort, low, high)
