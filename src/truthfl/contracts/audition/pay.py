"""The audition contract: label pay by the test of a solo model, and computing pay. docs/mechanism.md, section 8."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from truthfl.coded_text import coded
from truthfl.contracts.audition.labels import CAP_DEVIATIONS
from truthfl.contracts.contract import (
    ALWAYS_COLLECTED,
    CalculationStep,
    Contract,
    Evidence,
    Observation,
    People,
    PlanInputs,
    Prices,
    delivered_share,
)
from truthfl.contracts.setting import FloatArray
from truthfl.contracts.solo import honest_above
from truthfl.errors import InputError

if TYPE_CHECKING:
    from truthfl.contracts.audition.plan import AuditionInputs
    from truthfl.contracts.planning import PilotSide, Plan

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
class Audition(Contract):
    """The terms, announced to every client before they start.

    A derived contract may pay differently with its own `label_pay` and `computing_pay`. In `choose` it may choose
    other labels, batches and terms. It may also let other clients pass.

    batch_size      D'_i    assigned batch size
    labels          n'_i    number of samples to label
    solo_level      φ(n'_i) expected test loss of the model that the client trains alone
    solo_spread             standard deviation of that loss between honest clients
    gate                    a client takes part in the joint training if their solo loss is at most this much above
                            its level; if it is more than this below, the operator decides
    label_slope     Φ^L_i   money lost per unit of solo loss
    label_base              label pay at the expected solo loss: cost of labels and audition, and a margin
    label_cap               most label pay
    joint_slope     Φ^C_i   money lost per unit of the joint model's test loss
    joint_base              computing pay at the expected joint loss: cost of computing, and a margin
    joint_cap               most computing pay
    joint_constant          the expected joint loss is joint_constant + joint_curve / (labels taking part)
    joint_curve     A
    total_labels            Σ n'_i of all clients
    audition_pay            part of label_base for training alone; a client who does not pass does not get it
    """

    kind: ClassVar[str] = "audition"
    has_cap: ClassVar[bool] = True
    rescales: ClassVar[bool] = True
    counts_loss_rise: ClassVar[bool] = True
    part_words: ClassVar[Mapping[str, str]] = {"label_pay": "labels", "computing_pay": "computing"}
    needs: ClassVar[frozenset[Evidence]] = ALWAYS_COLLECTED | {Evidence.SOLO_LOSS}
    formula: ClassVar[str] = (
        "label pay = label_base + label_slope * (solo_level + level_shift * solo_spread - solo_loss), less "
        "audition_pay if the model does not pass, from 0 to label_cap; computing pay = (joint_base + joint_slope * "
        "(joint_constant + joint_curve / present_labels + loss_rise - test_loss), from 0 to joint_cap) * delivered / "
        "asked, 0 if it does not pass; pay = their sum, rounded to whole units. loss_rise follows from "
        "loss_by_rounds and the number of rounds that changed the model"
    )
    formula_keys: ClassVar[tuple[str, ...]] = ("terms.formula_labels", "terms.formula_computing", "terms.formula_sum")
    dropping_out: ClassVar[str] = (
        "A participant who sends no audition in time, or one whose loss is more than the gate above its level, does "
        "not pass: they take no part in the joint training and are paid for labels alone, by the formula. In a round "
        "in which a report is late, missing or refused, the others' reports count for it too, in proportion to their "
        "weights. An empty report is refused. Computing pay is the amount times the share of the participant's "
        "requested reports that were taken. Pay is never negative. A participant whose model is nearly the joint "
        "model, or a solo model, of an earlier job of the same task is not paid. A model whose loss is more than the "
        "gate below its level is shown to the operator, who may refuse it by a signed command within audition_seconds; "
        "then it is not paid either."
    )
    dropping_out_key: ClassVar[str] = "terms.dropping_out_audition"

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
    def plan_on(cls, pilot: PilotSide, people: People, prices: Prices) -> Plan:
        """Pilots with as many labels as the plan asks for."""
        from truthfl.contracts.audition.planning import plan_on_pilot

        return plan_on_pilot(cls, pilot, people, prices)

    @classmethod
    def plan(cls, inputs: PlanInputs) -> Self:  # noqa: ARG003
        raise InputError(
            f'the contract {cls.kind!r} is planned on pilot data, and this job has none; [contract] kind = "lceme" '
            "can be planned on constants."
        )

    @classmethod
    def choose(cls, inputs: AuditionInputs) -> Self:
        """Labels, batches and terms, from what the pilot measured."""
        from truthfl.contracts.audition.plan import plan_audition

        usual = plan_audition(inputs).contract
        if isinstance(usual, cls):
            return usual
        own = {field.name for field in fields(cls)} - {field.name for field in fields(usual)}
        if own:
            names = ", ".join(sorted(own))
            raise InputError(f"the contract {cls.kind!r} has additional terms, {names}; its plan must set them.")
        return cls(**{field.name: getattr(usual, field.name) for field in fields(usual)})

    def stop_chance(self) -> FloatArray:
        return honest_above(self.gate, self.solo_spread * np.sqrt(1.0 + self.labels / self.total_labels))

    def label_pay(self, observation: Observation, passed: NDArray[np.bool_] | None = None) -> FloatArray:
        """Pay for labels; 0 without a solo loss (NaN). A solo loss of None stands for the expected one.

        passed  what `passes` returned, if it was called already
        """
        if observation.solo is None:
            return np.clip(self.label_base, 0.0, self.label_cap)
        passed = self.passes(observation) if passed is None else passed
        solo = np.asarray(observation.solo.loss, dtype=float)
        amount = self.label_base + self.label_slope * (self.expected_solo_loss(observation) - solo)
        amount = amount - np.where(passed, 0.0, self.audition_pay)
        return np.asarray(np.where(np.isnan(solo), 0.0, np.clip(amount, 0.0, self.label_cap)))

    def expected_joint_loss(self, observation: Observation) -> FloatArray:
        """The joint loss expected for the labels and rounds that took part."""
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

    def parts(self, observation: Observation) -> dict[str, FloatArray]:
        passed = self.passes(observation)
        return {
            "label_pay": self.label_pay(observation, passed),
            "computing_pay": self.computing_pay(observation, passed),
        }

    def most_parts(self) -> dict[str, FloatArray]:
        return {"label_pay": self.label_cap, "computing_pay": self.joint_cap}

    def require_sound_terms(self) -> None:
        """Raise `InputError` unless all terms are finite, caps are not below pay, and quantities are not negative."""
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
        """Of label pay and computing pay together; label pay varies with the samples that a client happens to hold."""
        label_error = (self.label_cap - self.label_base) / CAP_DEVIATIONS
        return np.asarray(np.sqrt(np.square(label_error) + np.square(self.joint_slope * loss_error)))

    def explanation(self, money: Callable[[float], str]) -> list[str]:
        return [
            coded(
                "explanation.audition_labels",
                "You are paid for two things. For labels: when your {number} samples are labeled, your computer trains "
                "a small model on them alone, and that model is tested. The more you labeled and the more carefully, "
                "the better it does: about {expected} are expected for honest labels, and each 0.01 of its loss is "
                "worth {worth}. How well the others’ own models do says what can be expected of yours.",
                number=int(self.labels[0]),
                expected=money(float(self.label_base[0])),
                worth=money(float(self.label_slope[0]) / 100),
            ),
            coded(
                "explanation.audition_computing",
                "For computing: about {expected}, if the model that all train together turns out as expected of those "
                "who take part. Bad work of others does not lower your label pay.",
                expected=money(float(self.joint_base[0])),
            ),
            coded(
                "explanation.audition_limits",
                "You never owe anything, and the most you can be paid is {most}. A model that is as bad as that of one "
                "honest participant in 10,000 is stopped: its labels would harm the joint model.",
                most=money(float(self.label_cap[0] + self.joint_cap[0])),
            ),
        ]

    def calculation(self, observation: Observation) -> list[CalculationStep]:
        one = {name: float(np.ravel(values)[0]) for name, values in self.terms().items()}
        label_pay, computing = (float(np.ravel(part(observation))[0]) for part in (self.label_pay, self.computing_pay))
        level = float(np.ravel(self.expected_solo_loss(observation))[0])
        solo = level if observation.solo is None else float(np.ravel(observation.solo.loss)[0])
        solo_words: float | str = coded("calculation.no_model", "no model") if np.isnan(solo) else solo
        steps = [
            CalculationStep(
                coded(
                    "calculation.audition.labels",
                    "for labels = base + slope × (expected loss of your own model − its loss), from 0 to the cap",
                ),
                (one["label_base"], "+", one["label_slope"], "× (", level, "−", solo_words, ")"),
                label_pay,
            )
        ]
        if bool(np.ravel(self.passes(observation))[0]):
            expected = float(np.ravel(self.expected_joint_loss(observation))[0])
            loss = float(np.ravel(observation.test_loss)[0])
            numbers: tuple[float | int | str, ...] = (
                one["joint_base"], "+", one["joint_slope"], "× (", expected, "−", loss, ")",
            )  # fmt: skip
            words = coded(
                "calculation.audition.computing",
                "for computing = base + slope × (expected loss of the joint model − its loss), from 0 to the cap",
            )
            if observation.delivered is not None and observation.asked is not None:
                counts = (int(np.ravel(observation.delivered)[0]), "/", int(np.ravel(observation.asked)[0]))
                numbers = ("(", *numbers, ") ×", *counts)
                words = coded(
                    "calculation.audition.computing_by_reports",
                    "for computing = base + slope × (expected loss of the joint model − its loss), from 0 to the cap, "
                    "× reports taken / asked for",
                )
            steps.append(CalculationStep(words, numbers, computing))
        else:
            words = coded(
                "calculation.audition.no_computing", "for computing: you did not take part in the joint training"
            )
            steps.append(CalculationStep(words, (), 0.0))
        total = coded("calculation.audition.total", "pay = for labels + for computing")
        return [*steps, CalculationStep(total, (label_pay, "+", computing), label_pay + computing)]
