"""Expected pay, its spread and costs of an offer, for honest work and for the lies that the operator tried.

All values are computed from the offer and, if the participant enters them, her own costs. Imports `ledger.terms` and
`mechanism.formulas`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from truthfl.errors import InputError
from truthfl.ledger.terms import Offer, TriedLie
from truthfl.mechanism.formulas import work_cost

HONEST = "honest"
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
    """Expected values for honest work or one lie, if the other clients are honest.

    kind               of the lie; "honest" for honest work
    words              the lie in a few words and numbers; empty for honest work
    left               pay minus cost
    chance_below_cost  probability that pay is less than cost
    difference         `left` minus that of honest work
    difference_error   its standard error
    """

    kind: str
    words: str
    loss: float
    pay: float
    cost: float
    left: float
    chance_below_cost: float
    difference: float
    difference_error: float


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
    """Honest work first, then the lies that the operator tried, the one that gains most first."""
    honest_work = TriedLie(HONEST, "", 1.0, offer.client.batch_size, 1.0, 0.0, 0.0)
    honest = _outlook(offer, costs, honest_work, 0.0)
    lies = [_outlook(offer, costs, lie, honest.left) for lie in offer.client.lies]
    return [replace(honest, difference=0.0), *sorted(lies, key=lambda lie: -lie.difference)]


def _outlook(offer: Offer, costs: Costs, lie: TriedLie, honest_left: float) -> Outlook:
    loss = offer.job.expected_loss + lie.loss_rise
    pay, low, high = (
        offer.amount(loss + step * lie.loss_rise_error, delivered=lie.delivered, asked=1) for step in (0.0, 1.0, -1.0)
    )
    price = costs.computing / offer.client.batch_size
    cost = float(work_cost(costs.labeling, lie.labels, price, lie.batch_size))
    if not math.isfinite(pay - cost) or not math.isfinite(high - low):
        raise InputError(f"the offer's pay for {lie.words or 'honest work'} is no finite amount.")
    chance, left = _chance_below(cost, pay, pay_deviation(offer)), pay - cost
    return Outlook(lie.kind, lie.words, loss, pay, cost, left, chance, left - honest_left, abs(high - low) / 2)


def _chance_below(limit: float, mean: float, deviation: float) -> float:
    """Probability that a normally distributed value is below a limit."""
    if deviation <= 0:
        return 1.0 if mean < limit else 0.0
    return NormalDist(mean, deviation).cdf(limit)
