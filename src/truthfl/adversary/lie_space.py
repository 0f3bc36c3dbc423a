"""`LieSpace`: the limits of the family of lies for one job, random points of it, and neighbours of a point."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from truthfl.adversary.lie_point import FABRICATED_SCALES, MOST_LABELS, SCALES, TRUTH, LiePoint, ReportKind
from truthfl.learning.behaviour import SoloRecipe, Unlabeled
from truthfl.mechanism.checks import FloatArray, IntArray

REPORTS = (ReportKind.SCALED, ReportKind.ECHO, ReportKind.GARBAGE, ReportKind.LAST_BIT)
CHANCE_OF_REPORT = (0.76, 0.12, 0.08, 0.04)
RESTS, RECIPES = tuple(Unlabeled), tuple(SoloRecipe)
MOST_NOISE = 2.0

HONEST = 1 / 3  # chance that a random point has the honest value of labels, batch or scale
NO_LABELS = 1 / 4  # chance that a random point that does not label honestly has no labels at all
FALLING = 1 / 4  # chance that the scale of a random point changes over the rounds
STEP = 0.6  # standard deviation of the logarithm of a factor between a point and its neighbour
LABEL_STEP, NOISE_STEP = 0.15, 0.3  # standard deviations of the steps of labels and noise
RETURN = 0.15  # chance that a coordinate of a neighbour takes the honest value, or another kind of rest or report


@dataclass(frozen=True)
class LieSpace:
    """The limits of the family.

    batches      smallest and largest batch, as shares of the assigned one
    most_labels  labels made by hand, as a share of those asked for; more than 1 if clients own more samples
    solo         whether a rule pays by solo models: then a lie also has a recipe, and labels without computing
    recipes      those that clients could follow
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
        point = LiePoint(labels, _rest(random), batch, report, scale, last, noise)
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
        near = LiePoint(labels, rest, batch, report, min(scale, most), min(last, most), noise, point.recipe)
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
        """The canonical point with three significant digits, so that its words say nearly all of it."""
        labels, batch, scale, last_scale, noise = (
            float(f"{number:.3g}") for number in (point.labels, point.batch, point.scale, point.last_scale, point.noise)
        )
        rounded = replace(point, labels=labels, batch=batch, scale=scale, last_scale=last_scale, noise=noise)
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
