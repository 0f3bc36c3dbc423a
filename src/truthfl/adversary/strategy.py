"""`LiePoint`, one lie as a point of the searched family; `LieSpace`, the limits of that family in one job."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from truthfl.contracts.formulas import work_cost
from truthfl.contracts.setting import FloatArray, IntArray
from truthfl.learning.people.behaviour import Behaviour, Echo, Fabricator, Garbage, LastBit, SoloRecipe, Unlabeled
from truthfl.learning.solo import LONGER_STEPS

MOST_LABELS = 1.5  # of the labels asked for
SCALES = (0.01, 3.0)  # of a computed report
FABRICATED_SCALES = (0.01, 10.0)  # of an echo or garbage


class ReportKind(Enum):
    """How the report of a round is made."""

    SCALED = "their own change times a factor"
    ECHO = "the last change of the common model times a factor, with or without noise"
    GARBAGE = "a random direction, its length in proportion to the last change of the common model"
    LAST_BIT = "the received model with one bit changed"
    NOTHING = "the received model as it is, which is refused as empty"


KINDS = (
    "fewer labels",
    "random labels",
    "labels by machine",
    "fabricated report",
    "more labels",
    "other batch",
    "scaled report",
    "other recipe",
)


@dataclass(frozen=True)
class LiePoint:
    """A lie; the defaults are honest.

    labels      samples labeled by hand, as a share of those asked for
    rest        what happens to the other samples asked for
    batch       as a share of the assigned batch
    report      how the report is made
    scale       factor of the report in the first round (of an echo or garbage: in every round)
    last_scale  factor of a scaled report in the last round; between them it changes linearly
    noise       of an echo: the noise's length, as a share of the echo's
    momentum    of an echo: how much each change counts beside the one after it
    recipe      of the solo model, for contracts that use it
    """

    labels: float = 1.0
    rest: Unlabeled = Unlabeled.LEFT_OUT
    batch: float = 1.0
    report: ReportKind = ReportKind.SCALED
    scale: float = 1.0
    last_scale: float = 1.0
    noise: float = 0.0
    recipe: SoloRecipe = SoloRecipe.PRESCRIBED
    momentum: float = 0.0

    @property
    def computes(self) -> bool:
        """Whether the liar trains on their own samples."""
        return self.report is ReportKind.SCALED

    def canonical(self, *, solo: bool = False) -> LiePoint:
        """The same lie, with fields that do not matter at fixed values, so that equal lies are equal points.

        solo  whether solo models are tested: the recipe matters, and labels matter even without computing rounds
        """
        recipe = self.recipe if solo else SoloRecipe.PRESCRIBED
        rest = self.rest
        if self.labels >= 1:
            rest = Unlabeled.LEFT_OUT
        elif self.labels == 0 and (rest is not Unlabeled.PREDICTED or not self.computes):
            rest = Unlabeled.DRAWN
        if self.computes:
            return replace(self, rest=rest, noise=0.0, momentum=0.0, recipe=recipe)
        echo = self.report is ReportKind.ECHO
        noise, momentum = (self.noise, self.momentum) if echo else (0.0, 0.0)
        scale = self.scale if self.report in (ReportKind.ECHO, ReportKind.GARBAGE) else 1.0
        labels, rest = (self.labels, rest) if solo else (0.0, Unlabeled.DRAWN)
        return LiePoint(labels, rest, 0.0, self.report, scale, scale, noise, recipe, momentum)

    @property
    def kind(self) -> str:
        """The element of `KINDS` that the lie belongs to, by the first of: report, labels, scale, batch."""
        if not self.computes:
            return "fabricated report"
        if self.labels > 1:
            return "more labels"
        if self.labels < 1:
            if self.rest is Unlabeled.LEFT_OUT:
                return "fewer labels"
            return "random labels" if self.rest is Unlabeled.DRAWN else "labels by machine"
        if self.recipe is not SoloRecipe.PRESCRIBED:
            return "other recipe"
        return "other batch" if self.scale == self.last_scale == 1 else "scaled report"

    def batch_size(self, assigned: ArrayLike, owned: ArrayLike) -> FloatArray:
        """The batch that the liar uses; 0 if they compute nothing. For one client or for arrays of clients."""
        asked = np.rint(np.asarray(assigned, dtype=float) * self.batch)
        return np.minimum(np.maximum(asked, 1.0), owned) if self.computes else np.zeros_like(asked)

    def cost(
        self, labeling_cost: ArrayLike, batch_price: ArrayLike, assigned: ArrayLike, owned: ArrayLike
    ) -> FloatArray:
        """The liar's cost over the job; `labeling_cost` is for the labels asked for. For one client or for arrays."""
        batch = self.batch_size(assigned, owned)
        return np.asarray(work_cost(np.asarray(labeling_cost), self.labels, np.asarray(batch_price), batch))

    @property
    def solo_cost_factor(self) -> float:
        """The cost of the liar's solo training over the cost of the prescribed one."""
        return float(LONGER_STEPS) if self.recipe is SoloRecipe.LONGER else 1.0

    def behaviour(self, assigned: float, owned: float) -> Behaviour:
        """The lie as the behaviour of a client with this assigned batch and this many samples.

        Labels beyond the number asked for are all made by hand: the client then owns that many samples more.
        """
        fabricate = self._fabricator()
        scaled = self.computes or self.report is ReportKind.NOTHING
        scale = 0.0 if self.report is ReportKind.NOTHING else self.scale
        return Behaviour(
            self.words,
            self.words,
            labels_honestly=self.labels >= 1,
            computes_honestly=self.computes and self.batch == 1,
            reports_honestly=self.computes and self.scale == self.last_scale == 1,
            labeling_effort=min(self.labels, 1.0),
            unlabeled=self.rest,
            batch_share=float(self.batch_size(assigned, owned)) / assigned,
            report_scale=scale if scaled else 1.0,
            last_report_scale=None if self.last_scale == self.scale or not self.computes else self.last_scale,
            computes=self.computes,
            fabricate=fabricate,
            remembers=0 if fabricate is None or self.report is ReportKind.LAST_BIT else self._remembered,
            solo_recipe=self.recipe,
        )

    @property
    def _remembered(self) -> int:
        """How many earlier models the report is made of."""
        return REMEMBERED if self.momentum else 1

    def _fabricator(self) -> Fabricator | None:
        if self.report is ReportKind.ECHO:
            return Echo(self.scale, self.noise, self.momentum)
        if self.report is ReportKind.GARBAGE:
            return Garbage(self.scale)
        return LastBit() if self.report is ReportKind.LAST_BIT else None

    @property
    def words(self) -> str:
        """The lie in a few words and numbers."""
        parts = []
        if self.labels > 1:
            parts.append(f"labels × {self.labels:g}")
        elif self.labels < 1 and (self.computes or self.labels):
            made = f"{100 * self.labels:.3g}% labeled" if self.labels else "no labels"
            parts.append(f"{made}, rest {WORDS_OF_REST[self.rest]}")
        if self.recipe is not SoloRecipe.PRESCRIBED:
            parts.append(f"solo model {WORDS_OF_RECIPE[self.recipe]}")
        if not self.computes:
            noise = f" with noise × {self.noise:g}" if self.noise else ""
            momentum = f" with momentum {self.momentum:g}" if self.momentum else ""
            report = {
                ReportKind.ECHO: f"echo × {self.scale:g}{momentum}{noise}",
                ReportKind.GARBAGE: f"garbage × {self.scale:g}",
                ReportKind.LAST_BIT: "last bit",
            }.get(self.report, "sends nothing")
            return ", ".join([*(["all labeled"] if self.labels == 1 else []), *parts, report])
        if self.batch != 1:
            parts.append(f"batch × {self.batch:g}")
        if self.last_scale != self.scale:
            parts.append(f"report × {self.scale:g} to {self.last_scale:g}")
        elif self.scale != 1:
            parts.append(f"report × {self.scale:g}")
        return ", ".join(parts) or "the truth"

    def document(self) -> dict[str, Any]:
        """The point as JSON values."""
        names = {"rest": self.rest.name.lower(), "report": self.report.name.lower()}
        return asdict(self) | names | {"recipe": self.recipe.name.lower()}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> LiePoint:
        """The point with this document."""
        rest, report = Unlabeled[document["rest"].upper()], ReportKind[document["report"].upper()]
        recipe = SoloRecipe[document["recipe"].upper()]
        return cls(**{**document, "rest": rest, "report": report, "recipe": recipe})


WORDS_OF_REST = {
    Unlabeled.DRAWN: "at random",
    Unlabeled.LEFT_OUT: "left out",
    Unlabeled.PREDICTED: "by the common model",
    Unlabeled.OWN_MODEL: "by their own model",
    Unlabeled.NEAREST: "by nearest neighbour",
}

WORDS_OF_RECIPE = {
    SoloRecipe.LONGER: "trained longer",
    SoloRecipe.PENALIZED: "with more penalty",
    SoloRecipe.SHIFTED: "with shifts",
}

TRUTH = LiePoint()
ABSENCE = LiePoint(report=ReportKind.NOTHING).canonical()


REPORTS = (ReportKind.SCALED, ReportKind.ECHO, ReportKind.GARBAGE, ReportKind.LAST_BIT)
CHANCE_OF_REPORT = (0.76, 0.12, 0.08, 0.04)
RESTS, RECIPES = tuple(Unlabeled), tuple(SoloRecipe)
MOST_NOISE = 2.0
MOST_MOMENTUM, REMEMBERED = 0.95, 8  # of echoes; models that an echo with momentum is made of

HONEST = 1 / 3  # chance that a random point has the honest value of labels, batch or scale
NO_LABELS = 1 / 4  # chance that a random point that does not label honestly has no labels at all
FALLING = 1 / 4  # chance that the scale of a random point changes over the rounds
STEP = 0.6  # standard deviation of the logarithm of a factor between a point and its neighbour
LABEL_STEP, NOISE_STEP, MOMENTUM_STEP = 0.15, 0.3, 0.2  # standard deviations of the steps of these
RETURN = 0.15  # chance that a coordinate of a neighbour takes the honest value, or another kind of rest or report


@dataclass(frozen=True)
class LieSpace:
    """The limits of the family.

    batches      smallest and largest batch, as shares of the assigned one
    most_labels  labels made by hand, as a share of those asked for; more than 1 if clients own more samples
    solo         whether a rule pays by solo models: then a lie also has a recipe, and labels without computing
    recipes      that clients could follow
    """

    batches: tuple[float, float]
    most_labels: float = 1.0
    solo: bool = False
    recipes: tuple[SoloRecipe, ...] = RECIPES

    @classmethod
    def of_job(
        cls,
        batch_size: FloatArray,
        dataset_size: IntArray,
        most_labels: float = 1.0,
        *,
        solo: bool = False,
        recipes: tuple[SoloRecipe, ...] = RECIPES,
    ) -> LieSpace:
        """The space of a job with these assigned batches and numbers of samples."""
        smallest, largest = 1.0 / float(np.max(batch_size)), float(np.max(dataset_size / batch_size))
        return cls((smallest, largest), min(most_labels, MOST_LABELS), solo, recipes)

    def draw(self, random: np.random.Generator, count: int) -> list[LiePoint]:
        """`count` different random points, none of them the truth."""
        points: dict[LiePoint, None] = {}
        while len(points) < count:
            points.setdefault(self._one(random))
            points.pop(TRUTH, None)
        return list(points)

    def _one(self, random: np.random.Generator) -> LiePoint:
        report = _report(random)
        labels = 1.0 if random.random() < HONEST else self._labels(random)
        batch = 1.0 if random.random() < HONEST else _between(random, *self.batches)
        limits = _scales(report)
        scale = 1.0 if random.random() < HONEST and report is ReportKind.SCALED else _between(random, *limits)
        last = _between(random, SCALES[0], scale) if random.random() < FALLING else scale
        noise = float(random.uniform(0.0, MOST_NOISE)) if random.random() < 0.5 else 0.0
        momentum = float(random.uniform(0.0, MOST_MOMENTUM)) if random.random() < 0.5 else 0.0
        point = LiePoint(labels, _rest(random), batch, report, scale, last, noise, momentum=momentum)
        return self._rounded(replace(point, recipe=self._recipe(random)) if self.solo else point)

    def _recipe(self, random: np.random.Generator) -> SoloRecipe:
        """Half of the time the prescribed recipe."""
        return SoloRecipe.PRESCRIBED if random.random() < 0.5 else self.recipes[random.integers(len(self.recipes))]

    def _labels(self, random: np.random.Generator) -> float:
        return 0.0 if random.random() < NO_LABELS else float(random.uniform(0.0, self.most_labels))

    def neighbour(self, random: np.random.Generator, point: LiePoint) -> LiePoint:
        """A point near this one."""
        chance = random.random(6)
        labels = self._labels_near(random, point.labels, chance[0])
        batch = _near(random, point.batch or 1.0, chance[1], self.batches)
        scale = _near(random, point.scale, chance[2], FABRICATED_SCALES)
        falls = (point.last_scale != point.scale) != (chance[3] < RETURN)
        last = _near(random, min(point.last_scale, scale), 1.0, (SCALES[0], scale)) if falls else scale
        rest = _rest(random) if chance[4] < RETURN else point.rest
        report = _report(random) if chance[5] < RETURN else point.report
        most = _scales(report)[1]
        noise = min(abs(point.noise + float(random.normal(0.0, NOISE_STEP))), MOST_NOISE) if point.noise else 0.0
        momentum = min(abs(point.momentum + float(random.normal(0.0, MOMENTUM_STEP))), MOST_MOMENTUM)
        momentum = momentum if random.random() < 0.5 else point.momentum
        near = LiePoint(labels, rest, batch, report, min(scale, most), min(last, most), noise, point.recipe, momentum)
        return self._rounded(
            replace(near, recipe=self._recipe(random)) if self.solo and random.random() < RETURN else near
        )

    def _labels_near(self, random: np.random.Generator, labels: float, chance: float) -> float:
        """The share itself, or 1, or 0, or a share near it, by `chance`."""
        near = float(np.clip(labels + random.normal(0.0, LABEL_STEP), 0.0, self.most_labels))
        if chance >= 0.5:
            return near
        if chance >= 0.5 - RETURN:
            return 1.0 if chance < 0.5 - RETURN / 2 else 0.0
        return labels

    def _rounded(self, point: LiePoint) -> LiePoint:
        """The canonical point with three significant digits, so that its words describe nearly all of it."""
        labels, batch, scale, last_scale, noise = (
            float(f"{number:.3g}") for number in (point.labels, point.batch, point.scale, point.last_scale, point.noise)
        )
        momentum = float(f"{point.momentum:.2g}")
        rounded = replace(
            point, labels=labels, batch=batch, scale=scale, last_scale=last_scale, noise=noise, momentum=momentum
        )
        return rounded.canonical(solo=self.solo)


def _between(random: np.random.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform between those of `low` and `high`."""
    return math.exp(random.uniform(math.log(low), math.log(high)))


def _near(random: np.random.Generator, value: float, chance: float, limits: tuple[float, float]) -> float:
    """The value, or 1, or a number near the value, by `chance`."""
    if chance < RETURN:
        near = 1.0
    elif chance < 0.5:
        near = value
    else:
        near = value * math.exp(random.normal(0.0, STEP))
    return min(max(near, limits[0]), limits[1])


def _scales(report: ReportKind) -> tuple[float, float]:
    """The limits of the factor of such a report."""
    return SCALES if report is ReportKind.SCALED else FABRICATED_SCALES


def _rest(random: np.random.Generator) -> Unlabeled:
    return RESTS[int(random.integers(len(RESTS)))]


def _report(random: np.random.Generator) -> ReportKind:
    return REPORTS[int(random.choice(len(REPORTS), p=CHANCE_OF_REPORT))]
