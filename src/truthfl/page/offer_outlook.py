"""Expected pay, its spread and costs of an offer, for honest work and for some dishonest behaviours.

All values are computed from the offer and, if the participant enters them, her own costs. Imports `ledger.terms` and
`learning.behaviour`, `learning.behaviours`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from truthfl.errors import InputError
from truthfl.learning.behaviour import from_strategy
from truthfl.learning.behaviours import EXAGGERATOR, LAZY_LABELER, TRUTHFUL
from truthfl.ledger.terms import Offer

BEHAVIOURS = (TRUTHFUL, LAZY_LABELER, from_strategy("half batch", batch_share=0.5), EXAGGERATOR)
WORST_CASE_DEVIATIONS = 4.0
CURVE_STEPS = 40
MAX_LOSS = 1e6


@dataclass(frozen=True)
class Costs:
    """Total costs of honest work: labeling once, computing over all rounds."""

    labeling: float
    computing: float


@dataclass(frozen=True)
class Spread:
    """Distribution of pay if all clients are honest.

    expected, deviation   mean and standard deviation
    worst, worst_loss     lowest pay for test losses up to worst_loss, which is at least that of an untrained model
    negative_chance       probability of negative pay
    zero_loss             the test loss above which pay is negative; infinite if it never is
    """

    expected: float
    deviation: float
    worst: float
    worst_loss: float
    negative_chance: float
    zero_loss: float


@dataclass(frozen=True)
class Outlook:
    """Expected values for one behaviour if the other clients are honest.

    name                               of the behaviour
    effort, batch_size, report_scale   e, D and γ of the loss model
    left                               pay minus cost
    chance_below_cost                  probability that pay is less than cost
    difference                         `left` minus that of honest work
    """

    name: str
    effort: float
    batch_size: int
    report_scale: float
    loss: float
    pay: float
    cost: float
    left: float
    chance_below_cost: float
    difference: float


def assumed_costs(offer: Offer) -> Costs:
    """The costs that the offer assumes."""
    return Costs(offer.client.labeling_cost, offer.cost - offer.client.labeling_cost)


def own_costs(offer: Offer, labeling: float | None, computing: float | None) -> Costs:
    """The participant's costs; None for a cost that the offer assumes."""
    assumed = assumed_costs(offer)
    costs = Costs(
        assumed.labeling if labeling is None else labeling, assumed.computing if computing is None else computing
    )
    for name, cost in vars(costs).items():
        if not math.isfinite(cost) or cost < 0:
            raise InputError(f"the cost of {name} is {cost}; it must be a number from 0 on.")
    return costs


def spread(offer: Offer) -> Spread:
    """Distribution of this offer's pay."""
    job = offer.job
    deviation = pay_deviation(offer)
    untrained_loss = math.log(len(job.classes)) if job.classes else 0.0
    worst_loss = max(untrained_loss, job.expected_loss + WORST_CASE_DEVIATIONS * job.loss_error)
    return Spread(
        expected=offer.expected_pay,
        deviation=deviation,
        worst=float(offer.mechanism.pay_range(0.0, worst_loss)[0][0]),
        worst_loss=worst_loss,
        negative_chance=_chance_below(0.0, offer.expected_pay, deviation),
        zero_loss=_zero_loss(offer),
    )


def pay_deviation(offer: Offer) -> float:
    """Standard deviation of pay: half the difference of pay between one standard deviation of the loss up and down."""
    job = offer.job
    return abs(offer.amount(job.expected_loss - job.loss_error) - offer.amount(job.expected_loss + job.loss_error)) / 2


def pay_curve(offer: Offer, losses: list[float]) -> list[list[float]]:
    """Points (test loss, pay) of the plotted line; its range contains these losses with a margin."""
    margin = 0.06 * ((max(losses) - min(losses)) or 1.0)
    first, last = max(0.0, min(losses) - margin), max(losses) + 3 * margin
    plotted = [first + (last - first) * step / CURVE_STEPS for step in range(CURVE_STEPS + 1)]
    return [[loss, offer.amount(loss)] for loss in plotted]


def _zero_loss(offer: Offer) -> float:
    """The test loss at which pay becomes negative, by bisection; infinite if pay is positive up to `MAX_LOSS`."""
    low = offer.job.expected_loss
    high = max(2 * low, 1.0)
    while offer.amount(high) > 0:
        high *= 2
        if high > MAX_LOSS:
            return math.inf
    if offer.amount(low) <= 0:
        low = 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if offer.amount(middle) > 0 else (low, middle)
    return high


def outlooks(offer: Offer, costs: Costs) -> list[Outlook]:
    """Honest work first, then each of `BEHAVIOURS` that differs from it (a batch of one sample cannot be halved)."""
    assigned, share = offer.client.batch_size, offer.client.loss_share
    honest_gap = share.gap(1.0, assigned, 1.0)
    deviation = pay_deviation(offer)
    results: list[Outlook] = []
    for behaviour in BEHAVIOURS:
        effort, batch, scale = behaviour.labeling_effort, behaviour.batch_size(assigned), behaviour.report_scale
        if results and (effort, batch, scale) == (1.0, assigned, 1.0):
            continue
        loss = offer.job.expected_loss + share.gap(effort, batch, scale) - honest_gap
        pay = offer.amount(loss)
        cost = behaviour.cost(costs.labeling, costs.computing / assigned, assigned)
        left = pay - cost
        honest = results[0].left if results else left
        chance = _chance_below(cost, pay, deviation)
        results.append(Outlook(behaviour.name, effort, batch, scale, loss, pay, cost, left, chance, left - honest))
    return results


def _chance_below(limit: float, mean: float, deviation: float) -> float:
    """Probability that a normally distributed value is below a limit."""
    if deviation <= 0:
        return 1.0 if mean < limit else 0.0
    return NormalDist(mean, deviation).cdf(limit)
