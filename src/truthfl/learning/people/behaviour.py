"""`Behaviour`: what a client really does (labels, batch, report) and what this costs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

import numpy as np

from truthfl.contracts.formulas import work_cost
from truthfl.errors import InputError
from truthfl.learning.models.model import Params

Honest = Callable[[], Params]
Noise = np.random.Generator
Fabricator: TypeAlias = Callable[[Sequence[Params], Noise, Honest], Params]
"""(received, noise, honest) → report. Called once per round in which the client takes part.

received  the common models that the client has received, the latest last, with at most `remembers` earlier ones
noise     a generator seeded by a hash of (seed, client, round)
honest    computes the honest report when it is called
"""


class Unlabeled(Enum):
    """What a client does with the samples that they do not label by hand."""

    DRAWN = "their labels are drawn at random from all classes"
    LEFT_OUT = "they train only on the labeled samples, of which there is at least one"
    PREDICTED = "the current common model labels them, again in every round"
    OWN_MODEL = "a model that they train alone, on the labeled samples, labels them once, before the first round"
    NEAREST = "each takes the label of the labeled sample with the nearest pixels, once, before the first round"

    @property
    def needs_labeled(self) -> bool:
        """Whether it needs at least one labeled sample; the client then labels at least one."""
        return self in (Unlabeled.LEFT_OUT, Unlabeled.OWN_MODEL, Unlabeled.NEAREST)

    @property
    def is_derived(self) -> bool:
        """Whether their labels are derived from the labeled samples before training; see `derived_labels`."""
        return self in (Unlabeled.OWN_MODEL, Unlabeled.NEAREST)


class SoloRecipe(Enum):
    """The recipe by which a client trains their solo model in the audition; see `recipe.changed_recipe`."""

    PRESCRIBED = "as the offer prescribes"
    LONGER = "with four times as many steps"
    PENALIZED = "with five times the penalty"
    SHIFTED = "with shifted copies of their pictures, whether or not they are prescribed"


def from_strategy(
    name: str,
    *,
    labeling_effort: float = 1.0,
    batch_share: float = 1.0,
    report_scale: float = 1.0,
    computes: bool = True,
) -> Behaviour:
    """The behaviour given by three numbers: e, D as a share of the assigned batch, and γ."""
    return Behaviour(
        name,
        f"Labels {labeling_effort:g} of their samples and draws the other labels at random, uses {batch_share:g} times "
        f"the batch, reports {report_scale:g} times their change.",
        labels_honestly=labeling_effort == 1,
        computes_honestly=computes and batch_share == 1,
        reports_honestly=report_scale == 1,
        labeling_effort=labeling_effort,
        batch_share=batch_share,
        report_scale=report_scale,
        computes=computes,
    )


@dataclass(frozen=True)
class Behaviour:
    """One way to behave; the defaults are honest.

    Declared honesty (not computed from the other fields, so that tests can compare the two):

    labels_honestly    they label every sample by hand; wrong labels made with full effort still count as honest
    computes_honestly  they use the assigned batch
    reports_honestly   they send what they computed

    Actions:

    labeling_effort    e_i  share of their samples that they label by hand
    unlabeled               what they do with the other samples
    error_rate              probability that a label made by hand is wrong
    batch_share             batch that they use, as a share of the assigned one
    report_scale       γ_i  they send the model received plus γ_i times their change to it
    last_report_scale       γ_i of the last round, reached in equal steps from `report_scale` in the first round; None
                            if it stays the same
    computes                whether they compute gradients at all, and bear the cost
    fabricate               function that makes the report instead; it may request the honest one if they compute
    remembers               how many models before the latest one are passed to `fabricate`
    solo_recipe             how they train their solo model in the audition
    """

    name: str
    description: str
    labels_honestly: bool
    computes_honestly: bool
    reports_honestly: bool
    labeling_effort: float = 1.0
    unlabeled: Unlabeled = Unlabeled.DRAWN
    error_rate: float = 0.0
    batch_share: float = 1.0
    report_scale: float = 1.0
    last_report_scale: float | None = None
    computes: bool = True
    fabricate: Fabricator | None = None
    remembers: int = 0
    solo_recipe: SoloRecipe = SoloRecipe.PRESCRIBED

    def __post_init__(self) -> None:
        for field in ("labeling_effort", "error_rate", "batch_share", "report_scale", "last_report_scale"):
            value = getattr(self, field)
            if value is None and field == "last_report_scale":
                continue
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{field} is {value:g}; it must be a finite number, at least 0.")
            if field in ("labeling_effort", "error_rate") and value > 1:
                raise InputError(f"{field} is {value:g}; it must be from 0 to 1.")
        if self.unlabeled is Unlabeled.LEFT_OUT and self.labeling_effort == 0:
            raise InputError(f"{self.name} leaves out every sample; its labeling_effort must be above 0.")
        if self.unlabeled.is_derived and self.labeling_effort == 0:
            raise InputError(
                f"{self.name} labels no sample to derive the other labels from; its labeling_effort must be above 0."
            )
        if self.fabricate is not None and (self.report_scale != 1 or self.last_report_scale is not None):
            raise InputError(f"{self.name} both fabricates its report and scales it; it must do one of them.")
        if not (self.computes or self.fabricates or self.reports_nothing):
            raise InputError(f"{self.name} reports what it does not compute; it must compute or fabricate its report.")

    @property
    def truthful(self) -> bool:
        """Whether they label, compute and report honestly."""
        return self.labels_honestly and self.computes_honestly and self.reports_honestly

    @property
    def fabricates(self) -> bool:
        """Whether the report is made by `fabricate`."""
        return self.fabricate is not None

    @property
    def reports_nothing(self) -> bool:
        """Whether they always send back the model received, which the server refuses as empty."""
        return self.fabricate is None and self.report_scale == 0 and self.last_report_scale in (None, 0)

    @property
    def changes_scale(self) -> bool:
        """Whether the scale of the reports differs from round to round."""
        return self.last_report_scale not in (None, self.report_scale)

    def labeling_effort_for(self, samples: int) -> float:
        """The share of `samples` samples that they label by hand; at least one if they need one."""
        needed = self.unlabeled.needs_labeled
        return max(self.labeling_effort, 1.0 / samples) if needed else self.labeling_effort

    def batch_size(self, assigned: float, *, at_most: float = math.inf) -> int:
        """D_i: `batch_share` of the assigned batch, rounded half to even; from 1 to `at_most`."""
        return int(min(max(1, round(self.batch_share * assigned)), at_most))

    def cost(self, labeling_cost: float, batch_price: float, assigned: float, *, at_most: float = math.inf) -> float:
        """The cost over the job: labels, and the samples of the batches if they compute.

        labeling_cost  cost of labeling all samples once
        batch_price    cost of one sample in every batch of the job
        """
        batch = self.batch_size(assigned, at_most=at_most) if self.computes else 0
        return float(work_cost(labeling_cost, self.labeling_effort, batch_price, batch))

    def scale_in_round(self, round_: int, rounds: int) -> float:
        """γ_i in this round, counted from 0, of a job with this many rounds."""
        if self.last_report_scale is None or rounds == 1:
            return self.report_scale
        passed = round_ / (rounds - 1)  # exactly 1 in the last round, so that a last scale of 0 is reached exactly
        return self.report_scale + (self.last_report_scale - self.report_scale) * passed

    def report(
        self,
        received: Sequence[Params],
        noise: Callable[[], np.random.Generator],
        honest: Callable[[], Params],
        *,
        round_: int,
        rounds: int,
    ) -> Params:
        """The report on the last received model, in this round of `rounds`; a scale of 0 sends that model back.

        `noise` and `honest` are called only if needed.
        """
        common = received[-1]
        if self.fabricate is not None:
            honest_report = honest if self.computes else self._no_report
            return self._checked(self.fabricate(received, noise(), honest_report), common)
        scale = self.scale_in_round(round_, rounds)
        if scale == 0:
            return common
        local = honest()
        return local if scale == 1 else common + np.float32(scale) * (local - common)

    def _no_report(self) -> Params:
        raise InputError(f"the behaviour {self.name!r} asks for the honest report, but declares that it computes none.")

    def _checked(self, report: Params, common: Params) -> Params:
        """A fabricated report in the model's type, or `InputError`; it may be infinite if the common model is."""
        array = np.asarray(report)
        if array.shape != common.shape or array.dtype.kind != "f":
            raise InputError(
                f"the behaviour {self.name!r} reports an array of shape {array.shape} and type {array.dtype}; it must "
                f"be like the model, {common.shape} and {common.dtype}."
            )
        with np.errstate(over="ignore"):
            array = array.astype(common.dtype)
        if not np.isfinite(array).all() and np.isfinite(common).all():
            raise InputError(f"the behaviour {self.name!r} reports NaN or infinity; all numbers must be finite.")
        return array


def last_change(received: Sequence[Params]) -> Params:
    """The difference between the last two received models; 0 if there is only one."""
    return received[-1] - received[-2 if len(received) > 1 else -1]


def length(change: Params) -> float:
    """‖change‖."""
    wide = change.astype("float64")
    return math.sqrt((wide * wide).sum())


def direction(noise: Noise, like: Params, size: float) -> Params:
    """A vector of length `size` in a uniformly random direction, with the shape and type of `like`."""
    drawn = noise.standard_normal(like.shape)
    drawn *= size / math.sqrt((drawn * drawn).sum())
    return drawn.astype(like.dtype)


def finite_report(received: Params, made: Callable[[], Params]) -> Params:
    """The report returned by `made`, except that numbers that are not finite keep their received value.

    Otherwise a report that grows from round to round would end the training that it spoils.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        report = made()
        return report if np.isfinite(report).all() else np.where(np.isfinite(report), report, received)


def _require_sizes(fabricator: Echo | Garbage) -> None:
    """Raise `InputError` unless all its fields are finite and at least 0."""
    for field, value in vars(fabricator).items():
        if not (math.isfinite(value) and value >= 0):
            kind = type(fabricator).__name__
            raise InputError(f"{field} of {kind} is {value:g}; it must be a finite number, at least 0.")


@dataclass(frozen=True)
class Echo:
    """w + factor·(w − w'): the last change of the common model repeated, with noise; w if there is no earlier model.

    factor    of the change
    noise     length of noise in a random direction, as a share of the length of the reported change
    momentum  of earlier changes: the change before counts this much, the one before that its square, and so on
    """

    factor: float = 1.0
    noise: float = 0.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        _require_sizes(self)

    def __call__(self, received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG002
        def made() -> Params:
            change = last_change(received)
            for earlier in range(2, len(received)):
                share = change.dtype.type(self.momentum ** (earlier - 1))
                change = change + share * (received[-earlier] - received[-earlier - 1])
            echoed = received[-1] + change.dtype.type(self.factor) * change
            if self.noise == 0:
                return echoed
            return echoed + direction(noise, change, self.noise * self.factor * length(change))

        return finite_report(received[-1], made)


@dataclass(frozen=True)
class Garbage:
    """A change in a random direction.

    length  as a multiple of the length of the common model's last change
    """

    length: float = 1.0

    def __post_init__(self) -> None:
        _require_sizes(self)

    def __call__(self, received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG002
        def made() -> Params:
            change = last_change(received)
            return received[-1] + direction(noise, change, self.length * length(change))

        return finite_report(received[-1], made)


@dataclass(frozen=True)
class LastBit:
    """The received model with the last bit of its first number changed."""

    def __call__(self, received: Sequence[Params], noise: Noise, honest: Honest) -> Params:  # noqa: ARG002
        report = received[-1].copy()
        report[0] = np.nextafter(report[0], np.inf, dtype=report.dtype)
        return report
