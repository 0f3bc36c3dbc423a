"""Whether the model after a round is taken: not if it does what honest rounds do not.

The operator cannot look at masked reports, and one report that is as long as the offer allows can ruin a model in one
round. So the model after each round is tried on the operator's pilot samples, which nobody trains on and which are not
the test set. It is not taken if its loss jumps, if it rises step by step, or if the sum of reports is far longer than
the last ones; then the model stays as it was, and the next round starts from it. What is too much is measured on honest
jobs (`learning.round_limits`), so that honest rounds are practically never refused.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from truthfl.files import write_file
from truthfl.learning.aggregation import missing_factor
from truthfl.learning.federations import ServerSide
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.model import Model, Params
from truthfl.learning.round_limits import (
    FEWEST_LENGTHS,
    MOST_SAMPLES,
    WINDOW,
    Limit,
    RoundLimits,
    WhoTrains,
    measure_round_limits,
)
from truthfl.ledger.canonical import canonical_bytes
from truthfl.ledger.terms import Agreement
from truthfl.mechanism.setting import Training

LIMITS = ("rise", "drift", "length", "growth")


@dataclass(eq=False)
class Validation:
    """What is known of the rounds so far, and the limits of the next.

    model    of the job
    samples  the operator's own; the loss is measured on them
    limits   what honest rounds do not exceed
    lengths  of the last sums that were taken
    latest, lowest  the loss of the present model, and the lowest so far; None before the first round
    """

    model: Model
    samples: LabeledSamples
    limits: RoundLimits
    lengths: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    latest: float | None = None
    lowest: float = math.inf

    def state(self) -> dict[str, Any]:
        """What is remembered of the rounds, as JSON values."""
        lowest = self.lowest if math.isfinite(self.lowest) else None
        return {"lengths": list(self.lengths), "latest": self.latest, "lowest": lowest}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Remember what an earlier start of the server had remembered."""
        self.lengths.extend(state["lengths"])
        self.latest, self.lowest = state["latest"], math.inf if state["lowest"] is None else state["lowest"]

    def judge(self, before: Params, candidate: Params, changed: int, noise: float = 1.0) -> str | None:
        """Why the model after a round is not taken; None if it is taken, which is remembered.

        before   the model from which the round started
        changed  the number of earlier rounds that changed the model
        noise    see `noise_of`
        """
        if np.array_equal(before, candidate):
            return None
        fault = self.fault(before, candidate, changed, noise)
        if fault is None:
            self.remember(before, candidate)
        return fault

    def remember(self, before: Params, after: Params) -> None:
        """Remember a round that was taken, without judging it again."""
        if not np.array_equal(before, after):
            self._note(self.loss(after))
            self.lengths.append(_distance(before, after))

    def fault(self, before: Params, candidate: Params, changed: int, noise: float = 1.0) -> str | None:
        """As `judge`, but nothing is remembered."""
        if not np.isfinite(candidate).all():
            return "the model would have NaN or infinity"
        old, new = self._note(self.loss(before)) if self.latest is None else self.latest, self.loss(candidate)
        rise, drift = self.limits.rise.at(changed, noise), self.limits.drift.at(changed, noise)
        if not new - old <= rise:
            return f"the loss on the operator's samples would rise from {old:.4g} to {new:.4g}, by more than {rise:.2g}"
        if not new - self.lowest <= drift:
            return f"the loss on the operator's samples would be {new:.4g}, where it has been {self.lowest:.4g}"
        if len(self.lengths) >= FEWEST_LENGTHS:
            length, usual = _distance(before, candidate), float(np.median(self.lengths))
            growth, root = self.limits.growth.at(changed, noise), self.limits.length.at(changed, noise)
            if length > max(usual * math.exp(growth), root**2):  # the last ones may have been made short on purpose
                return f"the sum of the reports has length {length:.3g}, where the last ones have {usual:.3g}"
        return None

    def _note(self, loss: float) -> float:
        self.latest, self.lowest = loss, min(loss, self.lowest)
        return loss

    def loss(self, params: Params) -> float:
        """The loss on the operator's samples; infinity if it is none."""
        with np.errstate(all="ignore"):
            loss = self.model.loss(params, self.samples.features, self.samples.labels)
        return loss if math.isfinite(loss) else math.inf


def validation_of(
    side: ServerSide, model: Model, taking_part: Agreement, weights: Mapping[str, float], file: Path
) -> Validation:
    """What judges the rounds of a job, from the operator's pilot samples.

    taking_part  the offers of those who take part
    weights      theirs, by name
    file         keeps the limits for a server that is started again
    """
    terms, offers = taking_part.terms, taking_part.offers
    pilot = side.pilot.data
    samples = pilot.take(np.linspace(0, len(pilot) - 1, min(len(pilot), MOST_SAMPLES)).astype(np.int64))
    limits = _kept_limits(file)
    if limits is None:
        who = WhoTrains(
            tuple(offer.client.samples for offer in offers),
            np.array([offer.client.batch_size for offer in offers], dtype=float),
            np.array([weights[offer.client.name] for offer in offers]),
            np.array([offer.client.participation for offer in offers]),
        )
        limits = measure_round_limits(side, Training(terms.rounds, terms.local_steps, terms.step_size), who)
        content = canonical_bytes({name: getattr(limits, name).document() for name in LIMITS})
        write_file(file, content)
    return Validation(model, samples, limits)


def noise_of(asked: Sequence[float], taken: Sequence[float], *, rescales: bool) -> float:
    """How much noisier the sum of a round is than that of all reports asked for, at least 1; from their weights."""
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
    changed: int,
) -> SingleReportsTaken:
    """Combine the reports with these names; if the model is not taken, refuse those that spoil it by themselves.

    A report is refused if the model with its change alone, at its weight, would not be taken: that is evidence that
    nobody else can make. The worst is refused first, until the rest is taken. If there is no such report, or the rest
    is not taken either, the model stays as it was.

    changes, weights  of the reports, by name
    combine           from names: the model by these reports, others missing, and the noise of their sum (`noise_of`)
    """
    kept, refused = list(changes), dict[str, str]()
    candidate, noise = combine(kept)
    fault = validation.judge(before, candidate, changed, noise)
    if fault is None:
        return SingleReportsTaken(candidate, refused, None)
    alone = {name: before + np.float32(weights[name]) * change for name, change in changes.items()}
    faults = {name: found for name, one in alone.items() if (found := validation.fault(before, one, changed))}
    for name in sorted(faults, key=lambda name: validation.loss(alone[name]), reverse=True):
        refused[name] = f"spoils the model: with this report alone, {faults[name]}"
        kept.remove(name)
        if kept:
            candidate, noise = combine(kept)
            fault = validation.judge(before, candidate, changed, noise)
            if fault is None:
                return SingleReportsTaken(candidate, refused, None)
    return SingleReportsTaken(before, refused, fault)


def _kept_limits(file: Path) -> RoundLimits | None:
    """The limits that an earlier start of the server has measured; None if there are none that can be read."""
    try:
        document = json.loads(file.read_bytes())
        limits = [
            Limit(*(np.array(document[name][part]) for part in ("moments", "center", "beyond"))) for name in LIMITS
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return RoundLimits(*limits)


def _distance(one: Params, other: Params) -> float:
    apart = (other - one).astype(np.float64)
    return math.sqrt(float(np.square(apart, out=apart).sum()))
