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
from truthfl.ledger.documents import Offer

SHOWN = (TRUTHFUL, LAZY_LABELER, from_strategy("half batch", batch_share=0.5), EXAGGERATOR)
SHOWN_DEVIATIONS = 4.0


@dataclass(frozen=True)
class Costs:
    """What honest work costs her in all: labeling once, computing over all rounds."""

    labeling: float
    computing: float


@dataclass(frozen=True)
class Spread:
    """Her pay before the job, with everybody honest.

    expected, deviation   mean and standard deviation
    per_hundredth         what a test loss higher by 0.01 takes off
    worst, worst_loss     at the loss of a model that has learned nothing; the formula itself has no floor
    negative_chance       that the amount is below zero
    zero_loss             the test loss from which on it is
    """

    expected: float
    deviation: float
    per_hundredth: float
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
    return Costs(offer.terms.labeling_cost, offer.cost - offer.terms.labeling_cost)


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
    terms = offer.terms
    deviation = terms.slope * offer.loss_error
    knows_nothing = math.log(len(offer.classes)) if offer.classes else 0.0
    worst_loss = max(knows_nothing, offer.expected_loss + SHOWN_DEVIATIONS * offer.loss_error)
    return Spread(
        expected=offer.expected_pay,
        deviation=deviation,
        per_hundredth=terms.slope / 100,
        worst=terms.reward(worst_loss),
        worst_loss=worst_loss,
        negative_chance=_chance_below(0.0, offer.expected_pay, deviation),
        zero_loss=(terms.base + terms.labeling_cost) / terms.slope if terms.slope > 0 else math.inf,
    )


def outlooks(offer: Offer, costs: Costs) -> list[Outlook]:
    """Honest work first; then each of `SHOWN` that differs from it (a batch of one sample cannot be halved)."""
    honest_gap = offer.loss_share.gap(1.0, offer.batch_size, 1.0)
    deviation = offer.terms.slope * offer.loss_error
    made: list[Outlook] = []
    for one in SHOWN:
        effort, batch, scale = one.labeling_effort, one.batch_size(offer.batch_size), one.report_scale
        if made and (effort, batch, scale) == (1.0, offer.batch_size, 1.0):
            continue
        loss = offer.expected_loss + offer.loss_share.gap(effort, batch, scale) - honest_gap
        pay = offer.terms.reward(loss)
        cost = one.cost(costs.labeling, costs.computing / offer.batch_size, offer.batch_size)
        left = pay - cost
        honest = made[0].left if made else left
        chance = _chance_below(cost, pay, deviation)
        made.append(Outlook(one.name, effort, batch, scale, loss, pay, cost, left, chance, left - honest))
    return made


def _chance_below(limit: float, mean: float, deviation: float) -> float:
    if deviation <= 0:
        return 1.0 if mean < limit else 0.0
    return NormalDist(mean, deviation).cdf(limit)
