"""Whether the model after a round is taken. It is not if it behaves unlike honest rounds from the same model.

The operator cannot see masked reports, and one report of the length that the offer allows can ruin a model in one
round. So the model after each round is tried on the operator's pilot samples. Nobody trains on these, and they are not
the test set. If its loss rises visibly, or it moves farther than usual, it is compared with honest rounds of pilot
clients from the same model (`learning.pilot_rounds`). The model is refused if those rounds change it far less, or if
the job's last rounds moved it far less and no pilot clients moved it as far. Then it stays as it was, nobody is named,
and the next round starts from it again. Where the server sees single reports, one is refused only for its own effect.
What is tried is the model with the round's reports alone: momentum, which continues rounds that were taken, is added
afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from truthfl.contracts.setting import FloatArray
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.models.model import Params
from truthfl.learning.pilot.honest_rounds import PilotRounds, WhoTrains, lengths, pilot_rounds
from truthfl.learning.training.aggregation import missing_factor, new_combiner
from truthfl.ledger.terms import Agreement

DEVIATIONS = 8.0  # of honest rounds; only eight are known, from other clients
DEVIATIONS_OF_ONE = 12.0  # for refusing a single report, without regard to the others
FADING = 0.9
LONGER = 1.5  # times the usual length; a model that moves farther is examined even if its loss falls
RECENT = 10  # rounds of the job itself
FARTHER = 5.0  # times the longest of these; honest rounds reached up to 2.7 times


@dataclass(eq=False)
class Validation:
    """Judges the rounds of a job by honest rounds of pilot clients.

    latest  the last model that was tried, and its loss
    usual   how far the last simulated honest rounds moved the model; 0 before
    slack   a rise of the loss that is ignored: the spread after those rounds, shrinking with each round since
    recent  how far the job's last taken rounds moved the model, divided by the noise of their sums
    """

    honest: PilotRounds
    latest: tuple[Params, float] | None = None
    usual: float = 0.0
    slack: float = 0.0
    recent: list[float] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        """The memory of the rounds as JSON values, so that a restarted server judges in the same way."""
        return {"usual": self.usual, "slack": self.slack, "recent": self.recent}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the memory of an earlier start of the server."""
        self.usual, self.slack = float(state["usual"]), float(state["slack"])
        self.recent = [float(length) for length in state["recent"]]

    def judge(self, before: Params, candidate: Params, round_: int, noise: float = 1.0) -> str | None:
        """Why the model after a round is not taken; None if it is.

        before  the model from which the round started
        noise   see `noise_of`
        """
        if np.array_equal(before, candidate):
            return None
        if not np.isfinite(candidate).all():
            return "the model would have NaN or infinity"
        old, new = self._loss_before(before), self.honest.loss(candidate)
        length = float(lengths((candidate - before)[None])[0])
        self.slack *= FADING
        own = noise * max(self.recent) if len(self.recent) == RECENT else math.inf
        if new > old + self.slack or length > LONGER * min(self.usual, own):
            after = self.honest.after(before, round_)
            finite = np.isfinite(after.loss).all()
            self.usual, self.slack = float(after.length.mean()), float(after.loss.std()) if finite else 0.0
            limit, longest = (_limit(values, DEVIATIONS * noise) for values in (after.loss, after.length))
            if new > old and not new <= limit:
                return (
                    f"the loss on the operator's samples would rise from {old:.4g} to {new:.4g}, where honest rounds "
                    f"from this model stay below {limit:.4g}"
                )
            if FARTHER * own < length > LONGER * after.length.max():
                return f"the model would move by {length:.3g}, where the last rounds moved it by up to {own:.3g}"
            if length > longest:
                return f"the model would move by {length:.3g}, where honest rounds move it by up to {longest:.3g}"
        self.latest = candidate, new
        self.recent = [*self.recent[1 - RECENT :], length / noise]
        return None

    def faults_of(
        self, before: Params, changes: Mapping[str, Params], weights: Mapping[str, float], round_: int
    ) -> dict[str, tuple[float, str]]:
        """For each report that spoils the model alone at its weight: the resulting loss, and why."""
        old, limits, faults = self._loss_before(before), dict[float, tuple[float, float]](), {}
        for name, change in changes.items():
            weight = weights[name]
            if weight not in limits:
                after = self.honest.after_one(before, round_, weight)
                limits[weight] = _limit(after.loss, DEVIATIONS_OF_ONE), _limit(after.length, DEVIATIONS_OF_ONE)
            limit, longest = limits[weight]
            with np.errstate(all="ignore"):
                new, length = self.honest.loss(before + np.float32(weight) * change), float(lengths(change[None])[0])
            if new > old and not new <= limit:
                words = f"the loss on the operator's samples would rise from {old:.4g} to {new:.4g}"
                faults[name] = new, f"spoils the model: with this report alone, {words}"
            elif not length <= longest:
                words = f"its change has length {length:.3g}, where honest ones from this model have up to"
                faults[name] = new, f"spoils the model: {words} {longest:.3g}"
        return faults

    def _loss_before(self, before: Params) -> float:
        if self.latest is None or self.latest[0] is not before:
            self.latest = before, self.honest.loss(before)
        return self.latest[1]


def _limit(honest: FloatArray, deviations: float) -> float:
    """The limit that an honest round stays below, from some such rounds."""
    finite = honest[np.isfinite(honest)]
    if len(finite) < 2:
        return math.inf
    return float(finite.mean() + deviations * finite.std(ddof=1) * math.sqrt(1.0 + 1.0 / len(finite)))


def validation_of(
    side: ServerSide, taking_part: Agreement, weights: Mapping[str, float], aggregation: str
) -> Validation:
    """The object that judges the rounds of a job.

    taking_part  the offers of the clients who take part
    weights      their weights, by name
    aggregation  how their reports are combined
    """
    terms, offers = taking_part.terms, taking_part.offers
    who = WhoTrains(
        tuple(offer.client.samples for offer in offers),
        np.array([offer.client.batch_size for offer in offers], dtype=float),
        np.array([weights[offer.client.name] for offer in offers]),
        np.array([offer.client.participation for offer in offers]),
    )
    return Validation(pilot_rounds(side, terms.training, who, new_combiner(aggregation)))


def noise_of(asked: Sequence[float], taken: Sequence[float], *, rescales: bool) -> float:
    """How much noisier a round's sum is than the sum of all reports asked for, at least 1; from their weights."""
    if not taken:
        return 1.0
    factor = missing_factor(math.fsum(asked), math.fsum(taken)) if rescales else 1.0
    return max(1.0, factor * math.dist(taken, [0.0] * len(taken)) / math.dist(asked, [0.0] * len(asked)))


@dataclass(frozen=True, eq=False)
class SingleReportsTaken:
    """The outcome of a round in which the server sees single reports.

    params   the model after it
    refused  by name: why a report is refused
    fault    why the model stays as it was; None if it changed
    """

    params: Params
    refused: dict[str, str]
    fault: str | None


def take_single_reports(
    validation: Validation,
    before: Params,
    changes: Mapping[str, Params],
    weights: Mapping[str, float],
    combine: Callable[[Collection[str]], tuple[Params, float]],
    round_: int,
) -> SingleReportsTaken:
    """Combine the reports with these names; if the model is not taken, refuse those that spoil it alone.

    Such an effect is evidence that nobody else can fabricate. The worst report is refused first, until the rest is
    taken. If there is no such report, or the rest is not taken either, the model stays unchanged.

    changes, weights  by name
    combine           from names: the model of these reports without the others, and the noise of their sum (`noise_of`)
    """
    kept, refused = list(changes), dict[str, str]()
    candidate, noise = combine(kept)
    fault = validation.judge(before, candidate, round_, noise)
    if fault is None:
        return SingleReportsTaken(candidate, refused, None)
    faults = validation.faults_of(before, changes, weights, round_)
    for name in sorted(faults, key=lambda name: faults[name][0], reverse=True):
        refused[name] = faults[name][1]
        kept.remove(name)
        if kept:
            candidate, noise = combine(kept)
            fault = validation.judge(before, candidate, round_, noise)
            if fault is None:
                return SingleReportsTaken(candidate, refused, None)
    return SingleReportsTaken(before, refused, fault)
