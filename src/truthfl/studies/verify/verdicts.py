"""Verdicts on payment rules from a measurement, ex ante and ex post."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from truthfl.adversary.strategy import KINDS, LiePoint
from truthfl.contracts.contract import Evidence
from truthfl.contracts.formulas import LITTLE_GAIN
from truthfl.contracts.setting import FloatArray, IntArray, batch_price
from truthfl.studies.verify.regret import (
    Estimate,
    elicited_batch,
    elicited_labels,
    ex_post_regret,
    mean_of_group,
    mean_share,
    share_below_cost,
)
from truthfl.studies.verify.training import payers_of
from truthfl.studies.verify.verification import LieMeasurement, clusters


@dataclass(frozen=True)
class BestInHindsight:
    """The best lie of one case: `gain` is a share of honest pay, 0 if no lie gained.

    draw, split  of the data
    """

    draw: int
    split: int
    client: str
    lie: str
    gain: float


def best_in_hindsight(measurement: LieMeasurement, rule: int) -> list[BestInHindsight]:
    """The best lie of each measured case under a rule."""
    gains = measurement.gains[rule]
    best = gains.gain.argmax(axis=0)
    found = []
    for number, case in enumerate(measurement.cases):
        gain = float(gains.gain[best[number], number]) / gains.unit
        words = measurement.points[best[number]].words if gain > 0 else "the truth"
        client = measurement.test.name_on(case.place.draw, case.client)
        found.append(BestInHindsight(case.place.draw, case.place.split, client, words, max(gain, 0.0)))
    return found


def summary_rows(found: Sequence[BestInHindsight]) -> list[list[str]]:
    """One row per lie that was best in some case: the lie, the number of these cases, and its mean gain in them."""
    gains: dict[str, list[float]] = {}
    for each in found:
        gains.setdefault(each.lie, []).append(each.gain)
    ordered = sorted(gains.items(), key=lambda item: (-len(item[1]), item[0]))
    return [[lie, str(len(values)), f"{np.mean(values):.0%}"] for lie, values in ordered]


@dataclass(frozen=True)
class MeasuredLie:
    """A lie in words and numbers, with its gain ex ante as a share of honest pay and the 95% interval."""

    words: str
    kind: str
    point: Mapping[str, float | str]
    gain: float
    low: float
    high: float


@dataclass(frozen=True)
class ClientVerdict:
    """One client: the best lie for them that the search found, and the worth of their work.

    gain        ex ante, as a share of their honest pay, with its 95% interval; None if there are too few cases for one
    worth       κ times (loss without them − loss), in money, likewise
    cost        of their honest work
    """

    client: str
    best_lie: str
    gain: float
    gain_low: float | None
    gain_high: float | None
    worth: float
    worth_low: float | None
    worth_high: float | None
    cost: float


@dataclass(frozen=True)
class Verdict:
    """The result of one rule; shares are of honest pay, or of its cost if that is larger.

    regret           gain ex ante of the best lie found, measured on splits and seeds that the search has not seen: the
                     search's winner, or another measured lie if it is known to gain more
    ex_post_regret   gain of the best lie in hindsight, averaged over splits and clients; None for Shapley pay, which is
                     known only on average
    best_lie         words, and the numbers of the point
    elicited_labels  labels that serve a client best, as a share of those asked for
    elicited_batch   batch that serves a client best, as a share of the assigned one
    pay_over_cost    honest pay over the cost of honest work
    below_cost       share of honest participants paid below their cost; None for Shapley pay
    gain_over_cost   the regret as a share of the cost of honest work
    lying_pays       whether the gain exceeds 2% of the cost of honest work; None if the interval contains 2%
    coalition        gain of two clients of whom one labels and both report, as a share of their honest pay
    points, runs     lies tried, and training runs, for all rules that share this rule's training
    by_kind          the best lie of each kind
    clients          the clients whose lies were studied, one by one
    """

    rule: str
    regret: float
    regret_low: float
    regret_high: float
    ex_post_regret: float | None
    best_lie: Mapping[str, float | str]
    elicited_labels: float
    elicited_labels_low: float
    elicited_labels_high: float
    elicited_batch: float
    elicited_batch_low: float
    elicited_batch_high: float
    pay_over_cost: float
    below_cost: float | None
    gain_over_cost: float
    lying_pays: bool | None
    coalition: float | None
    coalition_low: float | None
    coalition_high: float | None
    points: int
    runs: int
    by_kind: tuple[MeasuredLie, ...]
    clients: tuple[ClientVerdict, ...]


def verdicts_of(measurement: LieMeasurement, *, loss_value: float, test_samples: int) -> tuple[Verdict, ...]:
    """One verdict per rule.

    loss_value    κ, for the worth of a client's work
    test_samples  number of test samples by which pay is settled
    """
    return tuple(_verdict(measurement, rule, loss_value, test_samples) for rule in range(len(measurement.test.names)))


def _verdict(measurement: LieMeasurement, rule: int, loss_value: float, test_samples: int) -> Verdict:
    test, points, cluster = measurement.test, measurement.points, measurement.cluster
    gains = measurement.gains[rule]
    winner, regret = _best_lie(measurement, rule)
    over_cost = gains.unit / float(gains.cost.mean())
    of_cases = [(test.draws[case.place.draw], case.client) for case in measurement.cases]
    labeling, owned, assigned, price = (
        np.array(values, dtype=float)
        for values in zip(
            *(
                (
                    draw.clients.labeling_cost[client],
                    draw.clients.dataset_size[client],
                    draw.rules[rule].batch_size[client],
                    batch_price(draw.clients, draw.training)[client],
                )
                for draw, client in of_cases
            ),
            strict=True,
        )
    )
    test_error = np.sqrt([draw.plan.loss_variance / test_samples for draw, _ in of_cases])
    below = share_below_cost(payers_of(test, rule), measurement.honest, gains, test_error)
    labels = elicited_labels(
        points,
        gains,
        labeling,
        cluster,
        most=measurement.design.most_labels,
        without_labels=_best_without_labels(measurement, rule),
    )
    needs_coalitions = Evidence.SHAPLEY in test.draws[0].rules[rule].needs  # pay of one case is then mostly noise
    return Verdict(
        rule=test.names[rule],
        regret=regret.value,
        regret_low=regret.low,
        regret_high=regret.high,
        ex_post_regret=None if needs_coalitions else ex_post_regret(gains),
        best_lie={"words": winner.words, **winner.document()},
        **_named("elicited_labels", labels),
        **_named("elicited_batch", elicited_batch(points, gains, assigned, owned, price, cluster)),
        pay_over_cost=float(gains.pay.sum() / gains.cost.sum()),
        below_cost=None if needs_coalitions else below,
        gain_over_cost=regret.value * over_cost,
        lying_pays=_answer(regret.low * over_cost, regret.high * over_cost),
        **_named("coalition", _of_pairs(measurement, rule)),
        points=len(measurement.found.points),
        runs=measurement.runs,
        by_kind=tuple(_best_of_kinds(measurement, rule)),
        clients=tuple(_clients(measurement, rule, loss_value)),
    )


def _best_lie(measurement: LieMeasurement, rule: int) -> tuple[LiePoint, Estimate]:
    """The best lie of the search, or a measured lie that is known to gain more.

    Whether another one gains more is asked of all measured lies at once, so its interval allows for this choice.
    """
    points, gains, cluster = measurement.points, measurement.gains[rule], measurement.cluster
    winner = measurement.found.best(rule)
    regret = mean_share(gains.gain[points.index(winner)], gains.unit, cluster)
    others = [mean_share(gain, gains.unit, cluster, of_several=len(points)) for gain in gains.gain]
    best = max(range(len(points)), key=lambda k: others[k].low)
    return (points[best], others[best]) if others[best].low > regret.high else (winner, regret)


def _answer(low: float, high: float) -> bool | None:
    """Whether a gain with this interval, as a share of cost, exceeds the tolerance; None if that is open."""
    if low > LITTLE_GAIN:
        return True
    return False if high < LITTLE_GAIN else None


def _of_pairs(measurement: LieMeasurement, rule: int) -> Estimate | None:
    if not measurement.pairs:
        return None
    pairs = measurement.pairs[rule]
    unit = float(pairs.pay.mean())
    return mean_share(pairs.gain, unit, clusters(measurement.design.measured)) if unit > 0 else None


def _best_without_labels(measurement: LieMeasurement, rule: int) -> LiePoint | None:
    """Of the measured lies without labels, the one that was best in the search."""
    found = measurement.found
    tried = [point for point in measurement.points if point.labels == 0 and point in found.points]
    return max(tried, key=lambda point: found.mean_so_far(rule, point), default=None)


def _named(name: str, estimate: Estimate | None) -> dict[str, Any]:
    """The estimate under three names; None for what is unknown."""
    values = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
    known = (value if value is not None and math.isfinite(value) else None for value in values)
    return dict(zip((name, f"{name}_low", f"{name}_high"), known, strict=True))


def measured_lie(point: LiePoint, gain: FloatArray, unit: float, cluster: IntArray) -> MeasuredLie:
    """The lie with its gains (cases,) as an estimate."""
    estimate = mean_share(gain, unit, cluster)
    return MeasuredLie(point.words, point.kind, point.document(), estimate.value, estimate.low, estimate.high)


def _best_of_kinds(measurement: LieMeasurement, rule: int) -> list[MeasuredLie]:
    """Of the measured lies of each kind, the one that was best in the search."""
    gains, found = measurement.gains[rule], measurement.found
    best = []
    for kind in KINDS:
        of_kind = [point for point in measurement.points if point.kind == kind and point in found.points]
        if of_kind:
            point = max(of_kind, key=lambda point: found.mean_so_far(rule, point))
            gain = gains.gain[measurement.points.index(point)]
            best.append(measured_lie(point, gain, gains.unit, measurement.cluster))
    return best


def _clients(measurement: LieMeasurement, rule: int, loss_value: float) -> list[ClientVerdict]:
    """For each client whose lies were studied: their best lie in the search, and the worth of their work."""
    found, honest, gains = measurement.found, measurement.honest, measurement.gains[rule]
    worth = loss_value * (honest.without - honest.loss)
    reached = np.isfinite(found.mean(rule))
    tried = [k for k, point in enumerate(found.points) if reached[k] and point in measurement.points]
    people, searched_people = np.array(measurement.people), np.array(measurement.searched)
    numbers = {name: number for number, name in enumerate(_in_order(measurement))}
    group = np.array([numbers[name] for name in measurement.people])
    verdicts = []
    for name, number in numbers.items():
        searched, own = searched_people == name, people == name
        mean = found.gains[rule][tried][:, searched].mean(axis=1) if searched.any() else found.mean(rule)[tried]
        best = found.points[tried[int(np.argmax(mean))]]
        unit = max(float(gains.pay[own].mean()), float(gains.cost[own].mean()))
        of_best = gains.gain[measurement.points.index(best)]
        verdicts.append(
            ClientVerdict(
                client=name,
                best_lie=best.words,
                **_named("gain", mean_of_group(of_best, 1.0 / unit, group, number)),
                **_named("worth", mean_of_group(worth, 1.0, group, number)),
                cost=float(gains.cost[own].mean()),
            )
        )
    return verdicts


def _in_order(measurement: LieMeasurement) -> list[str]:
    """The names of the clients of the measured cases, the job's own draw first."""
    test, people = measurement.test, set(measurement.people)
    names = [test.name_on(draw, k) for draw, rules in enumerate(test.draws) for k in range(len(rules.clients))]
    return [name for name in dict.fromkeys(names) if name in people]
