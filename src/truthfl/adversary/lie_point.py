"""`LiePoint`: one lie, as a point of the family that the search explores. docs/lying.md, "The family of lies"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from truthfl.learning.behaviour import Behaviour, Fabricator, SoloRecipe, Unlabeled
from truthfl.learning.fabricators import Echo, Garbage, LastBit
from truthfl.learning.recipe import LONGER_STEPS
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.formulas import work_cost

MOST_LABELS = 1.5  # of what was asked
SCALES = (0.01, 3.0)  # of a report that she computed
FABRICATED_SCALES = (0.01, 10.0)  # of an echo or garbage


class ReportKind(Enum):
    """How the report of a round is made."""

    SCALED = "her own change times a factor"
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
    rest        what becomes of the other samples that were asked for
    batch       as a share of the assigned batch
    report      how the report is made
    scale       factor of the report in the first round (of an echo or garbage: in every round)
    last_scale  factor of a scaled report in the last round; between them it changes linearly
    noise       of an echo: the noise's length, as a share of the echo's
    recipe      of the solo model, for contracts that pay by it
    """

    labels: float = 1.0
    rest: Unlabeled = Unlabeled.LEFT_OUT
    batch: float = 1.0
    report: ReportKind = ReportKind.SCALED
    scale: float = 1.0
    last_scale: float = 1.0
    noise: float = 0.0
    recipe: SoloRecipe = SoloRecipe.PRESCRIBED

    @property
    def computes(self) -> bool:
        """Whether she trains on her own samples."""
        return self.report is ReportKind.SCALED

    def canonical(self, *, solo: bool = False) -> LiePoint:
        """The same lie with the fields that do not matter at fixed values, so that equal lies are equal points.

        solo  whether solo models are tested: the recipe matters, and labels matter even if she does not compute rounds
        """
        recipe = self.recipe if solo else SoloRecipe.PRESCRIBED
        rest = self.rest
        if self.labels >= 1:
            rest = Unlabeled.LEFT_OUT
        elif self.labels == 0 and (rest is not Unlabeled.PREDICTED or not self.computes):
            rest = Unlabeled.DRAWN
        if self.computes:
            return replace(self, rest=rest, noise=0.0, recipe=recipe)
        noise = self.noise if self.report is ReportKind.ECHO else 0.0
        scale = self.scale if self.report in (ReportKind.ECHO, ReportKind.GARBAGE) else 1.0
        labels, rest = (self.labels, rest) if solo else (0.0, Unlabeled.DRAWN)
        return LiePoint(labels, rest, 0.0, self.report, scale, scale, noise, recipe)

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
        """The batch that she uses; 0 if she computes nothing. For one client or for arrays of clients."""
        asked = np.rint(np.asarray(assigned, dtype=float) * self.batch)
        return np.minimum(np.maximum(asked, 1.0), owned) if self.computes else np.zeros_like(asked)

    def cost(
        self, labeling_cost: ArrayLike, batch_price: ArrayLike, assigned: ArrayLike, owned: ArrayLike
    ) -> FloatArray:
        """Her cost over the job; `labeling_cost` is that of the labels asked for. For one client or for arrays."""
        batch = self.batch_size(assigned, owned)
        return np.asarray(work_cost(np.asarray(labeling_cost), self.labels, np.asarray(batch_price), batch))

    @property
    def solo_cost_factor(self) -> float:
        """The cost of her solo training over that of the prescribed one."""
        return float(LONGER_STEPS) if self.recipe is SoloRecipe.LONGER else 1.0

    def behaviour(self, assigned: float, owned: float) -> Behaviour:
        """The lie as the behaviour of a client with this assigned batch and so many samples.

        Labels beyond those asked for are all made by hand: the client then owns so many samples more.
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
            remembers=0 if fabricate is None or self.report is ReportKind.LAST_BIT else 1,
            solo_recipe=self.recipe,
        )

    def _fabricator(self) -> Fabricator | None:
        if self.report is ReportKind.ECHO:
            return Echo(self.scale, self.noise)
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
            report = {
                ReportKind.ECHO: f"echo × {self.scale:g}{noise}",
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
    Unlabeled.OWN_MODEL: "by her own model",
    Unlabeled.NEAREST: "by nearest neighbour",
}

WORDS_OF_RECIPE = {
    SoloRecipe.LONGER: "trained longer",
    SoloRecipe.PENALIZED: "with more penalty",
    SoloRecipe.SHIFTED: "with shifts",
}

TRUTH = LiePoint()
ABSENCE = LiePoint(report=ReportKind.NOTHING).canonical()
