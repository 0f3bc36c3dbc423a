"""Expected pay, its spread and costs of an offer, for honest work and for the lies that the operator tried.

All values are computed from the offer and, if the participant enters them, her own costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from truthfl.errors import InputError
from truthfl.ledger.solo_evidence import passes
from truthfl.ledger.terms import Offer
from truthfl.ledger.tried_lies import TriedLie
from truthfl.mechanism.formulas import work_cost
from truthfl.page.audition_terms import expected_evidence
from truthfl.page.catalogue import MessageError

HONEST = "honest"
WORST_CASE_DEVIATIONS = 4.0
MAX_LOSS = 1e6


@dataclass(frozen=True)
class Costs:
    """Total costs of honest work: labeling once, computing over all rounds and in the audition."""

    labeling: float
    computing: float


@dataclass(frozen=True)
class Spread:
    """Distribution of pay if all clients are honest.

    expected, deviation   mean and standard deviation
    worst, worst_loss     lowest pay for test losses up to worst_loss, which is at least that of an untrained model
    negative_chance       probability of negative pay; 0 if it never is
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
    stopped            whether she would not pass the audition: she then neither computes rounds nor is paid for them
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
    stopped: bool


def assumed_costs(offer: Offer) -> Costs:
    """The costs that the offer assumes."""
    return Costs(offer.client.labeling_cost, offer.cost - offer.client.labeling_cost)


def own_costs(offer: Offer, labeling: float | None, computing: float | None) -> Costs:
    """The participant's costs; None for a cost that the offer assumes."""
    assumed = assumed_costs(offer)
    costs = Costs(
        assumed.labeling if labeling is None else labeling, assumed.computing if computing is None else computing
    )
    for cost in vars(costs).values():
        if not math.isfinite(cost) or cost < 0:
            raise MessageError("offer.cost_invalid")
    return costs


def spread(offer: Offer) -> Spread:
    """Distribution of this offer's pay."""
    job = offer.job
    deviation, safe = pay_deviation(offer), _is_never_negative(offer)
    untrained_loss = math.log(len(job.classes)) if job.classes else 0.0
    worst_loss = max(untrained_loss, job.expected_loss + WORST_CASE_DEVIATIONS * job.loss_error)
    return Spread(
        expected=offer.expected_pay,
        deviation=deviation,
        worst=_lowest_pay(offer, worst_loss),
        worst_loss=worst_loss,
        negative_chance=0.0 if safe else _chance_below(0.0, offer.expected_pay, deviation),
        zero_loss=math.inf if safe else _zero_loss(offer),
    )


def pay_deviation(offer: Offer) -> float:
    """Standard deviation of pay; infinite or NaN where the terms are absurd."""
    import numpy as np

    with np.errstate(all="ignore"):
        return float(np.ravel(offer.mechanism.deviation(offer.job.expected_loss, offer.job.loss_error))[0])


def _lowest_pay(offer: Offer, highest_loss: float) -> float:
    """The lowest pay for test losses up to this one."""
    import numpy as np

    with np.errstate(all="ignore"):
        return float(offer.mechanism.pay_range(0.0, highest_loss)[0][0])


def _is_never_negative(offer: Offer) -> bool:
    """Whether pay is at least 0 whatever the test loss, up to `MAX_LOSS`."""
    return _lowest_pay(offer, MAX_LOSS) >= 0


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
    pay, cost, stopped = _pay_and_cost(offer, costs, lie)
    joint, solo = lie.loss_rise_error, lie.solo_rise_error
    error = math.hypot(_half_difference(offer, costs, lie, joint, 0.0), _half_difference(offer, costs, lie, 0.0, solo))
    if not math.isfinite(pay - cost) or not math.isfinite(error):
        raise InputError(f"the offer's pay for {lie.words or 'honest work'} is no finite amount.")
    covered = cost <= 0 and _is_never_negative(offer)
    return Outlook(
        kind=lie.kind,
        words=lie.words,
        loss=offer.job.expected_loss + lie.loss_rise,
        pay=pay,
        cost=cost,
        left=pay - cost,
        chance_below_cost=0.0 if covered else _chance_below(cost, pay, pay_deviation(offer)),
        difference=pay - cost - honest_left,
        difference_error=error,
        stopped=stopped,
    )


def _pay_and_cost(
    offer: Offer, costs: Costs, lie: TriedLie, more_loss: float = 0.0, more_solo_loss: float = 0.0
) -> tuple[float, float, bool]:
    """Pay and cost of a lie that raises the losses by so much more, and whether it is stopped at the audition."""
    evidence = expected_evidence(offer, lie.solo_rise + more_solo_loss)
    stopped = evidence is not None and not passes(offer, evidence.solo_loss, evidence.level_shift)
    loss = offer.job.expected_loss + lie.loss_rise + more_loss
    pay = offer.amount(loss, delivered=lie.delivered, asked=1, evidence=evidence)
    alone = costs.computing * _share_alone(offer)
    price = 0.0 if stopped else (costs.computing - alone) / offer.client.batch_size
    return pay, float(work_cost(costs.labeling, lie.labels, price, lie.batch_size)) + alone, stopped


def _half_difference(offer: Offer, costs: Costs, lie: TriedLie, loss: float, solo_loss: float) -> float:
    """Half of the difference of what is left between losses that are by so much lower and higher."""
    (low_pay, low_cost, _), (high_pay, high_cost, _) = (
        _pay_and_cost(offer, costs, lie, sign * loss, sign * solo_loss) for sign in (-1.0, 1.0)
    )
    return abs((low_pay - low_cost) - (high_pay - high_cost)) / 2


def _share_alone(offer: Offer) -> float:
    """Of the cost of computing, the share of the audition, as the offer assumes it."""
    computing = assumed_costs(offer).computing
    return offer.client.audition_cost / computing if computing > 0 else 0.0


def _chance_below(limit: float, mean: float, deviation: float) -> float:
    """Probability that a normally distributed value is below a limit."""
    if deviation <= 0:
        return 1.0 if mean < limit else 0.0
    return NormalDist(mean, deviation).cdf(limit)
