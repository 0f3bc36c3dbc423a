"""The audition contract: label pay by the test of a solo model, and computing pay. docs/mechanism.md, section 8.

docs/mechanism.md, section 8. A custom contract that pays by solo models derives from it (section 7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.audition.labels import CAP_DEVIATIONS
from truthfl.contracts.contract import (
    ALWAYS_COLLECTED,
    CalculationStep,
    Evidence,
    Mechanism,
    Observation,
    PlanInputs,
    delivered_share,
)
from truthfl.contracts.setting import FloatArray
from truthfl.errors import InputError

NEVER_NEGATIVE = (
    "solo_level",
    "gate",
    "label_slope",
    "label_base",
    "label_cap",
    "joint_slope",
    "joint_base",
    "joint_cap",
    "audition_pay",
)


@dataclass(frozen=True, eq=False)
class Audition(Mechanism):
    """The terms, announced to every client before she starts.

    A contract that derives from it may pay otherwise by its own `label_pay` and `computing_pay`, choose other terms in
    `plan`, and let others pass; what is asked first, and how solo models are tested, stays.

    batch_size      D'_i    assigned batch size
    labels          n'_i    number of samples to label
    solo_level      φ(n'_i) expected test loss of the model that she trains alone
    solo_spread             standard deviation of that loss between honest clients
    gate                    she takes part in the joint training if her solo loss is at most this above its level; the
                            operator decides on who is more than this below it
    label_slope     Φ^L_i   money she loses per unit of solo loss
    label_base              label pay at the expected solo loss: cost of labels and audition, and a margin
    label_cap               most label pay
    joint_slope     Φ^C_i   money she loses per unit of the joint model's test loss
    joint_base              computing pay at the expected joint loss: cost of computing, and a margin
    joint_cap               most computing pay
    joint_constant          the expected joint loss is joint_constant + joint_curve / (labels taking part)
    joint_curve     A
    total_labels            Σ n'_i of all clients
    audition_pay            part of label_base that is for training alone; who does not pass is not paid it
    """

    kind: ClassVar[str] = "audition"
    has_cap: ClassVar[bool] = True
    rescales: ClassVar[bool] = True
    needs: ClassVar[frozenset[Evidence]] = ALWAYS_COLLECTED | {Evidence.SOLO_LOSS}
    formula: ClassVar[str] = (
        "label pay = label_base + label_slope * (solo_level + level_shift * solo_spread - solo_loss), less "
        "audition_pay for who does not pass, from 0 to label_cap; computing pay = (joint_base + joint_slope * "
        "(joint_constant + joint_curve / present_labels + loss_rise - test_loss), from 0 to joint_cap) * delivered / "
        "asked, 0 for who does not pass; pay = their sum, rounded to whole units. loss_rise follows from "
        "loss_by_rounds and the number of rounds that changed the model"
    )
    dropping_out: ClassVar[str] = (
        "Who sends no audition in time, or one whose loss is more than the gate above its level, takes no part in the "
        "joint training and is paid for labels alone, by the formula. In a round in which a report is late, missing or "
        "refused, the others' reports count for it too, in proportion to their weights. An empty report is refused. "
        "Computing pay is the amount times the share of the rounds she was asked in whose report was taken. Pay is "
        "never negative. Who sends a model that is nearly the joint model, or a solo model, of an earlier job of the "
        "same task is not paid. A model whose loss is more than the gate below its level is shown to the operator, who "
        "may refuse it by a signed command within audition_seconds; then it is not paid either."
    )

    batch_size: FloatArray
    labels: FloatArray
    solo_level: FloatArray
    solo_spread: FloatArray
    gate: FloatArray
    label_slope: FloatArray
    label_base: FloatArray
    label_cap: FloatArray
    joint_slope: FloatArray
    joint_base: FloatArray
    joint_cap: FloatArray
    joint_constant: FloatArray
    joint_curve: FloatArray
    total_labels: FloatArray
    audition_pay: FloatArray

    @classmethod
    def plan(cls, inputs: PlanInputs) -> Self:
        from truthfl.contracts.audition.plan import plan_audition

        usual = plan_audition(inputs).contract
        if isinstance(usual, cls):
            return usual
        own = {field.name for field in fields(cls)} - {field.name for field in fields(usual)}
        if own:
            names = ", ".join(sorted(own))
            raise InputError(f"the contract {cls.kind!r} has terms of its own, {names}; its plan must set them.")
        return cls(**{field.name: getattr(usual, field.name) for field in fields(usual)})

    def expected_solo_loss(self, observation: Observation) -> FloatArray:
        """φ(n'_i) + shift: the solo loss that is expected of her, given those of the others."""
        return np.asarray(self.solo_level + self.solo_spread * np.asarray(observation.level_shift, dtype=float))

    def passes(self, observation: Observation) -> NDArray[np.bool_]:
        """Whether she takes part in the joint training; without a solo loss (NaN) she does not."""
        if observation.solo_loss is None:
            return np.ones(np.shape(self.gate), dtype=bool)
        excess = np.asarray(observation.solo_loss, dtype=float) - self.expected_solo_loss(observation)
        with np.errstate(invalid="ignore"):
            return np.asarray(excess <= self.gate)

    def too_good(self, observation: Observation) -> NDArray[np.bool_]:
        """Whether her solo model is so much better than expected that the operator looks at it before it is paid."""
        if observation.solo_loss is None:
            return np.zeros(np.shape(self.gate), dtype=bool)
        below = self.expected_solo_loss(observation) - np.asarray(observation.solo_loss, dtype=float)
        with np.errstate(invalid="ignore"):
            return np.asarray(below > self.gate)

    def label_pay(self, observation: Observation, passed: NDArray[np.bool_] | None = None) -> FloatArray:
        """Pay for labels; 0 without a solo loss (NaN). A solo loss of None stands for the expected one.

        passed  what `passes` says, if it was asked already
        """
        if observation.solo_loss is None:
            return np.clip(self.label_base, 0.0, self.label_cap)
        passed = self.passes(observation) if passed is None else passed
        solo = np.asarray(observation.solo_loss, dtype=float)
        amount = self.label_base + self.label_slope * (self.expected_solo_loss(observation) - solo)
        amount = amount - np.where(passed, 0.0, self.audition_pay)
        return np.asarray(np.where(np.isnan(solo), 0.0, np.clip(amount, 0.0, self.label_cap)))

    def expected_joint_loss(self, observation: Observation) -> FloatArray:
        """The joint loss that is expected with the labels and rounds that took part."""
        present = self.total_labels if observation.present_labels is None else observation.present_labels
        expected = self.joint_constant + self.joint_curve / np.maximum(np.asarray(present, dtype=float), 1.0)
        return np.asarray(expected + observation.loss_rise)

    def computing_pay(self, observation: Observation, passed: NDArray[np.bool_] | None = None) -> FloatArray:
        """Pay for computing; 0 for those who did not pass."""
        passed = self.passes(observation) if passed is None else passed
        loss = np.asarray(observation.test_loss, dtype=float)
        amount = self.joint_base + self.joint_slope * (self.expected_joint_loss(observation) - loss)
        paid = delivered_share(np.clip(amount, 0.0, self.joint_cap), observation)
        return np.asarray(np.where(passed, paid, 0.0))

    def pay(self, observation: Observation) -> FloatArray:
        """Label pay and computing pay."""
        passed = self.passes(observation)
        return self.label_pay(observation, passed) + self.computing_pay(observation, passed)

    def require_sound_terms(self) -> None:
        """Raise `InputError` unless all terms are finite, caps are not below pay, and what counts is not negative."""
        terms = self.terms()
        for name, values in terms.items():
            if not np.isfinite(values).all():
                raise InputError(f"the offer's {name} is not finite.")
        for name in NEVER_NEGATIVE:
            if (terms[name] < 0).any():
                raise InputError(f"the offer's {name} is {terms[name].min()}; it must be a number from 0 on.")
        if (self.solo_spread <= 0).any():
            raise InputError("the offer's solo_spread is not above 0.")
        for part in ("label", "joint"):
            if (terms[f"{part}_base"] > terms[f"{part}_cap"]).any():
                raise InputError(f"the offer's {part}_cap is below its {part}_base: that much could never be paid.")
        if (self.total_labels < self.labels).any():
            raise InputError("the offer's total_labels are fewer than your own.")

    def pay_range(self, lowest_loss: float, highest_loss: float) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Nothing, and both caps."""
        return np.zeros_like(self.label_cap), self.label_cap + self.joint_cap

    def deviation(self, expected_loss: float, loss_error: float) -> FloatArray:  # noqa: ARG002
        """Of label pay and computing pay together; label pay varies with the samples that she happens to hold."""
        label_error = (self.label_cap - self.label_base) / CAP_DEVIATIONS
        return np.asarray(np.sqrt(np.square(label_error) + np.square(self.joint_slope * loss_error)))

    def explanation(self, money: Callable[[float], str]) -> list[str]:
        labels, cap = int(self.labels[0]), float(self.label_cap[0] + self.joint_cap[0])
        return [
            f"You are paid for two things. For labels: when your {labels} samples are labeled, your computer trains a "
            "small model on them alone, and that model is tested. The more you labeled and the more carefully, the "
            f"better it does: about {money(float(self.label_base[0]))} are expected for honest labels, and each 0.01 "
            f"of its loss is worth {money(float(self.label_slope[0]) / 100)}. How well the others’ own models do says "
            "what can be expected of yours.",
            f"For computing: about {money(float(self.joint_base[0]))}, if the model that all train together turns out "
            "as expected of those who take part. What others do badly is not taken from your label pay.",
            f"You never owe anything, and the most you can be paid is {money(cap)}. A model that is as bad as that of "
            "one honest participant in 10,000 is stopped: its labels would harm the joint model. One that is better by "
            "as much is shown to the operator, who may refuse it; and an earlier job’s joint model is not paid.",
        ]

    def calculation(self, observation: Observation) -> list[CalculationStep]:
        one = {name: float(np.ravel(values)[0]) for name, values in self.terms().items()}
        label_pay, computing = (float(np.ravel(part(observation))[0]) for part in (self.label_pay, self.computing_pay))
        level = float(np.ravel(self.expected_solo_loss(observation))[0])
        solo = level if observation.solo_loss is None else float(np.ravel(observation.solo_loss)[0])
        solo_words: float | str = "no model" if np.isnan(solo) else solo
        steps = [
            CalculationStep(
                "for labels = base + slope × (expected solo loss − your solo loss), from 0 to the cap",
                (one["label_base"], "+", one["label_slope"], "× (", level, "−", solo_words, ")"),
                label_pay,
                "labels",
            )
        ]
        if bool(np.ravel(self.passes(observation))[0]):
            expected = float(np.ravel(self.expected_joint_loss(observation))[0])
            loss = float(np.ravel(observation.test_loss)[0])
            numbers: tuple[float | int | str, ...] = (
                one["joint_base"], "+", one["joint_slope"], "× (", expected, "−", loss, ")",
            )  # fmt: skip
            words, name = (
                "for computing = base + slope × (expected joint loss − joint loss), from 0 to the cap",
                "computing",
            )
            if observation.delivered is not None and observation.asked is not None:
                counts = (int(np.ravel(observation.delivered)[0]), "/", int(np.ravel(observation.asked)[0]))
                numbers, words = ("(", *numbers, ") ×", *counts), f"{words}, × reports taken / asked for"
                name = "computing_by_reports"
            steps.append(CalculationStep(words, numbers, computing, name))
        else:
            words = "for computing: you did not take part in the joint training"
            steps.append(CalculationStep(words, (), 0.0, "no_computing"))
        total = "pay = for labels + for computing"
        return [*steps, CalculationStep(total, (label_pay, "+", computing), label_pay + computing, "total")]
