"""What an offer means: expected pay and its spread, plain amounts, plots, explanations, privacy.

Offers come from the server and are untrusted. All values are computed from the offer, and from the participant's own
costs if they enter them.

A plot has a curve [[loss, pay]], the range of 19 in 20 honest jobs (band), points with names, the title of the losses
and the currency (axes), and the loss above which a participant is stopped (limit; None without an audition). Names and
the title are keys of the catalogues. `benchmarks.inversion` measured what can be recovered (docs/security.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from truthfl.coded_text import CodedText, amount
from truthfl.contracts.formulas import LITTLE_GAIN, work_cost
from truthfl.errors import InputError
from truthfl.instructions import SECONDS_A_LABEL
from truthfl.ledger.evidence import SoloEvidence, expected_solo_loss, highest_passing_loss, passes, pay_parts
from truthfl.ledger.terms import OWN, Offer, TriedLie
from truthfl.page.catalogue import Message, MessageError, money, rounded

if TYPE_CHECKING:
    from truthfl.learning.privacy_promise import PromisedPrivacy


def require_sound_audition(offer: Offer) -> None:
    """Raise `InputError` unless the terms of the offer's audition are finite and mean what the page says of them."""
    from truthfl.learning.solo import recipe_of

    recipe_of(offer.job.recipe)
    offer.require_payable()
    for name, value in (
        ("audition_cost", offer.client.audition_cost),
        ("audition_seconds", offer.job.audition_seconds),
    ):
        if not math.isfinite(value) or value < 0:
            raise InputError(f"the offer's {name} is {value}; it must be a number from 0 on.")


def expected_evidence(offer: Offer, solo_rise: float = 0.0) -> SoloEvidence | None:
    """The evidence of an honest audition, with a solo loss that is higher by `solo_rise`; None without an audition."""
    if not offer.job.has_solo_models:
        return None
    return SoloEvidence(float(offer.contract.stage.level[0]) + solo_rise, 0.0, None)


def audition_view(offer: Offer) -> dict[str, Any] | None:
    """The parts of pay, and the gate; None without an audition.

    parts, total               each with expected and most pay; a part has its name, and its purpose in words
    level, spread              mean and standard deviation of honest clients' solo losses
    limit                      the highest solo loss that passes, if the others' solo losses are as expected
    label_deviation            standard deviation of pay among honest clients, if all else goes as expected
    """
    evidence = expected_evidence(offer)
    if evidence is None:
        return None
    contract, loss = offer.contract, offer.job.expected_loss
    stage, most = contract.stage, contract.most_parts()
    parts = pay_parts(offer, loss, 1, 1, evidence)
    return {
        "parts": [
            {"name": name, "words": contract.part_words[name], "expected": part, "most": float(most[name][0])}
            for name, part in parts.items()
        ],
        "total": {
            "expected": offer.amount(loss, 1, 1, evidence),
            "most": float(contract.pay_range(0.0, loss)[1][0]),
        },
        "level": float(stage.level[0]),
        "spread": float(stage.spread[0]),
        "limit": highest_passing_loss(offer, 0.0),
        "label_deviation": float(contract.deviation(loss, 0.0)[0]),
    }


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
    difference         `left` minus the same for honest work
    difference_error   its standard error
    pays               whether the difference is known to be more than `LITTLE_GAIN` of the cost of honest work
    stopped            whether the client would fail the audition; they then compute no rounds and get no pay for them
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
    pays: bool
    stopped: bool


def assumed_costs(offer: Offer) -> Costs:
    """The costs that the offer assumes."""
    return Costs(offer.client.labeling_cost, offer.cost - offer.client.labeling_cost)


def own_costs(offer: Offer, labeling: float | None, computing: float | None) -> Costs:
    """The participant's costs; None where the offer's assumption holds."""
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
        return float(np.ravel(offer.contract.deviation(offer.job.expected_loss, offer.job.loss_error))[0])


def _lowest_pay(offer: Offer, highest_loss: float) -> float:
    """The lowest pay for test losses up to this one."""
    import numpy as np

    with np.errstate(all="ignore"):
        return float(offer.contract.pay_range(0.0, highest_loss)[0][0])


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
    """Honest work first, then the lies that the operator tried, the most profitable first."""
    honest_work = TriedLie(HONEST, "", 1.0, offer.client.batch_size, 1.0, 0.0, 0.0)
    honest = _outlook(offer, costs, honest_work, None)
    lies = [_outlook(offer, costs, lie, honest) for lie in offer.client.lies]
    return [honest, *sorted(lies, key=lambda lie: -lie.difference)]


def _outlook(offer: Offer, costs: Costs, lie: TriedLie, honest: Outlook | None) -> Outlook:
    """The outlook of a lie, compared with that of honest work; of honest work itself without it."""
    pay, cost, stopped = _pay_and_cost(offer, costs, lie)
    joint, solo = lie.loss_rise_error, lie.solo_rise_error
    error = math.hypot(_half_difference(offer, costs, lie, joint, 0.0), _half_difference(offer, costs, lie, 0.0, solo))
    if not math.isfinite(pay - cost) or not math.isfinite(error):
        raise InputError(f"the offer's pay for {lie.words or 'honest work'} is no finite amount.")
    covered = cost <= 0 and _is_never_negative(offer)
    difference = 0.0 if honest is None else pay - cost - honest.left
    much = 0.0 if honest is None else LITTLE_GAIN * honest.cost
    return Outlook(
        kind=lie.kind,
        words=lie.words,
        loss=offer.job.expected_loss + lie.loss_rise,
        pay=pay,
        cost=cost,
        left=pay - cost,
        chance_below_cost=0.0 if covered else _chance_below(cost, pay, pay_deviation(offer)),
        difference=difference,
        difference_error=error,
        pays=difference - 2.0 * error > max(much, 0.5 / offer.job.minor_units),
        stopped=stopped,
    )


def _pay_and_cost(
    offer: Offer, costs: Costs, lie: TriedLie, more_loss: float = 0.0, more_solo_loss: float = 0.0
) -> tuple[float, float, bool]:
    """Pay and cost of a lie that raises the losses by this much more, and whether it is stopped at the audition."""
    evidence = expected_evidence(offer, lie.solo_rise + more_solo_loss)
    stopped = evidence is not None and not passes(offer, evidence.solo_loss, evidence.level_shift)
    loss = offer.job.expected_loss + lie.loss_rise + more_loss
    pay = offer.amount(loss, delivered=lie.delivered, asked=1, evidence=evidence)
    alone = costs.computing * _share_alone(offer)
    price = 0.0 if stopped else (costs.computing - alone) / offer.client.batch_size
    return pay, float(work_cost(costs.labeling, lie.labels, price, lie.batch_size)) + alone, stopped


def _half_difference(offer: Offer, costs: Costs, lie: TriedLie, loss: float, solo_loss: float) -> float:
    """Half of the difference in what is left, between losses that are lower and higher by this much."""
    (low_pay, low_cost, _), (high_pay, high_cost, _) = (
        _pay_and_cost(offer, costs, lie, sign * loss, sign * solo_loss) for sign in (-1.0, 1.0)
    )
    return abs((low_pay - low_cost) - (high_pay - high_cost)) / 2


def _share_alone(offer: Offer) -> float:
    """The audition's share of the cost of computing, as the offer assumes it."""
    computing = assumed_costs(offer).computing
    return offer.client.audition_cost / computing if computing > 0 else 0.0


def _chance_below(limit: float, mean: float, deviation: float) -> float:
    """Probability that a normally distributed value is below a limit."""
    if deviation <= 0:
        return 1.0 if mean < limit else 0.0
    return NormalDist(mean, deviation).cdf(limit)


LIKELY_DEVIATIONS = 1.96  # 19 of 20 values of a normal distribution are within this many


@dataclass(frozen=True)
class PaySummary:
    """Amounts in the job's currency, all for honest work.

    per_sample    expected pay by the number of samples to label
    least         the lowest pay: exact if it is `sure`; otherwise the pay for a model that learns nothing
    likely_least, likely_most  between these are 19 of 20 amounts
    most          the highest pay
    pace          seconds for one label; `pace_known` if it is the participant's own, from their last labels
    label_seconds for all labels, at that pace
    per_hour      expected pay per hour of labeling; what the computer does by itself takes none of that time
    """

    per_sample: float
    least: float
    sure: bool
    likely_least: float
    likely_most: float
    most: float
    pace: float
    pace_known: bool
    label_seconds: float
    per_hour: float


def pay_summary(offer: Offer, spread: Spread, pace: float | None) -> PaySummary:
    """The summary of this offer; `pace` is the participant's own, or None if unknown."""
    import numpy as np

    with np.errstate(all="ignore"):
        most = float(offer.contract.pay_range(0.0, spread.worst_loss)[1][0])
    around = LIKELY_DEVIATIONS * spread.deviation
    samples, seconds = offer.client.samples, SECONDS_A_LABEL if pace is None else pace
    return PaySummary(
        per_sample=spread.expected / samples,
        least=spread.worst,
        sure=spread.negative_chance == 0.0 and spread.worst >= 0.0,
        likely_least=max(spread.expected - around, spread.worst),
        likely_most=min(spread.expected + around, most),
        most=most,
        pace=seconds,
        pace_known=pace is not None,
        label_seconds=samples * seconds,
        per_hour=spread.expected / (samples * seconds) * 3600.0,
    )


def labels_worth(offer: Offer) -> dict[str, Any]:
    """What one label is expected to earn, for the labeling page; pay is decided later."""
    return {
        "per_label": offer.expected_pay / offer.client.samples,
        "samples": offer.client.samples,
        "minor_units": offer.job.minor_units,
        "currency": offer.job.currency,
        "audition": offer.job.has_solo_models,
    }


CURVE_STEPS = 40
BESIDE_LIMIT = 1e-9  # relative distance of the points of the curve on both sides of the limit


def offer_plot(offer: Offer) -> dict[str, Any]:
    """The plot of an offer, with one point for honest work."""
    evidence = expected_evidence(offer)
    if evidence is None:
        return _by_test_loss(offer, {"plot.honest_work": offer.job.expected_loss})
    expected = expected_solo_loss(offer, 0.0)
    return _by_solo_loss(offer, offer.job.expected_loss, None, evidence, {"plot.honest_work": expected})


def receipt_plot(
    offer: Offer, test_loss: float, rounds: tuple[int, int] | None, evidence: SoloEvidence | None
) -> dict[str, Any]:
    """The plot of a receipt, with a point for the expected result and one for the actual result.

    rounds    delivered and asked; None if the client took no part: the line is then for clients who deliver all
    evidence  of the client's audition; None without one
    """
    if evidence is None:
        return _by_test_loss(offer, {"plot.expected": offer.job.expected_loss, "plot.this_job": test_loss})
    points = {"plot.expected": expected_solo_loss(offer, evidence.level_shift)}
    if evidence.solo_loss is not None:
        points["plot.your_model"] = float(evidence.solo_loss)
    return _by_solo_loss(offer, test_loss, rounds, evidence, points)


def _by_test_loss(offer: Offer, points: Mapping[str, float]) -> dict[str, Any]:
    job = offer.job
    band = [job.expected_loss - 2 * job.loss_error, job.expected_loss + 2 * job.loss_error]
    return _plot(offer, "plot.test_loss", offer.amount, points, band, None)


def _by_solo_loss(
    offer: Offer,
    test_loss: float,
    rounds: tuple[int, int] | None,
    evidence: SoloEvidence,
    points: Mapping[str, float],
) -> dict[str, Any]:
    (delivered, asked), level = rounds or (1, 1), expected_solo_loss(offer, evidence.level_shift)
    spread = float(offer.contract.stage.spread[0])
    band = [level - 2 * spread, level + 2 * spread]

    def pay(solo_loss: float) -> float:
        return offer.amount(test_loss, delivered, asked, replace(evidence, solo_loss=solo_loss))

    return _plot(offer, "plot.own_loss", pay, points, band, highest_passing_loss(offer, evidence.level_shift))


def _plot(
    offer: Offer,
    title: str,
    pay: Callable[[float], float],
    points: Mapping[str, float],
    band: list[float],
    limit: float | None,
) -> dict[str, Any]:
    """The plot; the last point is emphasized."""
    beside = [] if limit is None else [limit - BESIDE_LIMIT * abs(limit), limit + BESIDE_LIMIT * abs(limit)]
    return {
        "curve": [[loss, pay(loss)] for loss in sorted([*_grid([*points.values(), *band, *beside]), *beside])],
        "band": band,
        "limit": limit,
        "points": [
            {"loss": loss, "pay": pay(loss), "name": name, "key": name == list(points)[-1]}
            for name, loss in points.items()
        ],
        "axes": {"loss": title, "pay": offer.job.currency},
    }


def _grid(losses: list[float]) -> list[float]:
    """Equally distant losses; their range contains these losses with a margin."""
    margin = 0.06 * ((max(losses) - min(losses)) or 1.0)
    first, last = max(0.0, min(losses) - margin), max(losses) + 3 * margin
    return [first + (last - first) * step / CURVE_STEPS for step in range(CURVE_STEPS + 1)]


def explanation(offer: Offer) -> list[dict[str, Any] | str]:
    """Messages; English sentences where the contract's sentences have no translation."""
    job = offer.job

    def told(value: float) -> str:
        return amount(money(value, job.minor_units, job.currency), value, job.minor_units, job.currency)

    sentences: list[dict[str, Any] | str] = [
        sentence.form if isinstance(sentence, CodedText) else sentence for sentence in offer.contract.explanation(told)
    ]
    return [*sentences, *([asdict(Message("explanation.stated_cost"))] if offer.client.stated else [])]


MUCH = 10.0  # an ε above which little is promised


def privacy_view(offer: Offer) -> dict[str, Any]:
    """What leaves the participant's machine, one sentence each, and what noise promises; `noise` is None without
    clipping.
    """
    promised = promised_to(offer)
    return {
        "leaves": [asdict(sentence) for sentence in what_leaves(offer)],
        "noise": None if promised is None else asdict(promised) | {"epsilon": _finite(promised.epsilon)},
        "noise_words": asdict(noise_words(offer, promised)),
    }


def sample_noun(offer: Offer) -> str:
    """The word for a sample of the offer's job: "picture", "text" or "row"."""
    task = offer.job.task
    return {"pictures": "picture", "texts": "text"}.get("pictures" if task is None else str(task["name"]), "row")


def what_leaves(offer: Offer) -> list[Message]:
    """What the participant's machine sends in this job, one sentence each."""
    job, client, noun = offer.job, offer.client, sample_noun(offer)
    own_way = job.aggregation == OWN
    rounds = Message(
        "privacy.rounds_own" if own_way else "privacy.rounds",
        {"rounds": job.rounds, "number": client.batch_size, "noun": noun},
    )
    seen = "privacy.seen_pictures" if noun == "picture" else "privacy.seen"
    return [
        Message("privacy.identity_pictures" if noun == "picture" else "privacy.identity", {"noun": noun}),
        Message("privacy.progress", {"noun": noun}),
        Message("privacy.answers"),
        *([Message("privacy.audition", {"number": client.samples, "noun": noun})] if job.has_solo_models else []),
        *([Message("privacy.masked" if job.masked else seen, {"sent": rounds, "noun": noun})] if job.rounds else []),
    ]


def noise_words(offer: Offer, promised: PromisedPrivacy | None) -> Message:
    """What clipping and noise promise, in words."""
    if promised is None:
        return Message("privacy.no_noise")
    values: dict[str, Any] = {"noun": sample_noun(offer), "clip": promised.clip}
    if not promised.noise:
        return Message("privacy.clipped", values)
    if not math.isfinite(promised.epsilon):
        return Message("privacy.hardly_noisy", values)
    values |= {
        "noise": promised.noise,
        "number": offer.client.samples,
        "epsilon": rounded(promised.epsilon, 1),
        "delta": promised.delta,
    }
    return Message("privacy.noisy_weak" if promised.epsilon > MUCH else "privacy.noisy", values)


def promised_to(offer: Offer) -> PromisedPrivacy | None:
    """What the offer's noise promises; None if gradients are not clipped."""
    model = offer.job.model
    if not isinstance(model, Mapping) or not model.get("clip"):
        return None
    from truthfl.learning.privacy_promise import promised_privacy
    from truthfl.learning.solo import recipe_of

    return promised_privacy(
        float(model["clip"]),
        float(model.get("noise", 0.0)),
        samples=offer.client.samples,
        batch_size=offer.client.batch_size,
        steps=offer.job.rounds * offer.job.local_steps,
        recipe=recipe_of(offer.job.recipe) if offer.job.has_solo_models else None,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
