"""What an offer comes to for her: pay, its spread, her costs, and what she would be left with if she did less.

Everything is computed from the offer itself and, where she enters them, her own costs. Imports the ledger's papers and
`learning` (behaviours).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from truthfl.errors import InputError
from truthfl.learning.behaviour import from_strategy
from truthfl.learning.behaviours import EXAGGERATOR, LAZY_LABELER, TRUTHFUL
from truthfl.ledger.terms import Offer

SHOWN = (TRUTHFUL, LAZY_LABELER, from_strategy("half batch", batch_share=0.5), EXAGGERATOR)
SHOWN_DEVIATIONS = 4.0
CURVE_STEPS = 40
LARGEST_LOSS = 1e6


@dataclass(frozen=True)
class Costs:
    """What honest work costs her in all: labeling once, computing over all rounds."""

    labeling: float
    computing: float


@dataclass(frozen=True)
class Spread:
    """Her pay before the job, with everybody honest.

    expected, deviation   mean and standard deviation
    worst, worst_loss     the least pay up to the loss of a model that has learned nothing
    negative_chance       that the amount is below zero
    zero_loss             the test loss from which on it is; infinite where it never is
    """

    expected: float
    deviation: float
    worst: float
    worst_loss: float
    negative_chance: float
    zero_loss: float


@dataclass(frozen=True)
class Outlook:
    """What one behaviour comes to, the others being honest: what it does to the loss, her pay and what she keeps.

    name                               the behaviour's
    effort, batch_size, report_scale   e, D and γ of the loss model
    chance_below_cost                  that her pay does not reach this behaviour's costs
    difference                         of what is left from what honest work leaves
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
    """What the offer takes her costs to be."""
    return Costs(offer.client.labeling_cost, offer.cost - offer.client.labeling_cost)


def own_costs(offer: Offer, labeling: float | None, computing: float | None) -> Costs:
    """The offer's, except for those that she entered."""
    assumed = assumed_costs(offer)
    found = Costs(
        assumed.labeling if labeling is None else labeling, assumed.computing if computing is None else computing
    )
    for what, cost in vars(found).items():
        if not math.isfinite(cost) or cost < 0:
            raise InputError(f"the cost of {what} is {cost}; it must be a number from 0 on.")
    return found


def spread(offer: Offer) -> Spread:
    job = offer.job
    deviation = pay_deviation(offer)
    knows_nothing = math.log(len(job.classes)) if job.classes else 0.0
    worst_loss = max(knows_nothing, job.expected_loss + SHOWN_DEVIATIONS * job.loss_error)
    return Spread(
        expected=offer.expected_pay,
        deviation=deviation,
        worst=float(offer.mechanism.pay_range(0.0, worst_loss)[0][0]),
        worst_loss=worst_loss,
        negative_chance=_chance_below(0.0, offer.expected_pay, deviation),
        zero_loss=_zero_loss(offer),
    )


def pay_deviation(offer: Offer) -> float:
    """The standard deviation of her pay, from half of what one standard deviation of the loss to either side does."""
    job = offer.job
    return abs(offer.amount(job.expected_loss - job.loss_error) - offer.amount(job.expected_loss + job.loss_error)) / 2


def pay_curve(offer: Offer, losses: list[float]) -> list[list[float]]:
    """Points (test loss, pay) of the line that a plot draws, from a little below the least of these losses on."""
    room = 0.06 * ((max(losses) - min(losses)) or 1.0)
    first, last = max(0.0, min(losses) - room), max(losses) + 3 * room
    at = [first + (last - first) * step / CURVE_STEPS for step in range(CURVE_STEPS + 1)]
    return [[loss, offer.amount(loss)] for loss in at]


def _zero_loss(offer: Offer) -> float:
    """Where pay goes below zero, by bisection; infinite where it does not up to a loss of a million."""
    low = offer.job.expected_loss
    high = max(2 * low, 1.0)
    while offer.amount(high) > 0:
        high *= 2
        if high > LARGEST_LOSS:
            return math.inf
    if offer.amount(low) <= 0:
        low = 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if offer.amount(middle) > 0 else (low, middle)
    return high


def outlooks(offer: Offer, costs: Costs) -> list[Outlook]:
    """Honest work first; then each of `SHOWN` that differs from it (a batch of one sample cannot be halved)."""
    assigned, share = offer.client.batch_size, offer.client.loss_share
    honest_gap = share.gap(1.0, assigned, 1.0)
    deviation = pay_deviation(offer)
    made: list[Outlook] = []
    for one in SHOWN:
        effort, batch, scale = one.labeling_effort, one.batch_size(assigned), one.report_scale
        if made and (effort, batch, scale) == (1.0, assigned, 1.0):
            continue
        loss = offer.job.expected_loss + share.gap(effort, batch, scale) - honest_gap
        pay = offer.amount(loss)
        cost = one.cost(costs.labeling, costs.computing / assigned, assigned)
        left = pay - cost
        honest = made[0].left if made else left
        chance = _chance_below(cost, pay, deviation)
        made.append(Outlook(one.name, effort, batch, scale, loss, pay, cost, left, chance, left - honest))
    return made


def _chance_below(limit: float, mean: float, deviation: float) -> float:
    if deviation <= 0:
        return 1.0 if mean < limit else 0.0
    return NormalDist(mean, deviation).cdf(limit)
