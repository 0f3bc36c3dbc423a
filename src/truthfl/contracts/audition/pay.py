"""The audition contract: pay for labels by the test of a solo model, a fixed amount for computing.

docs/mechanism.md, section 8.
"""

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
from truthfl.errors import InputError

if TYPE_CHECKING:
    from truthfl.contracts.audition.plan import AuditionInputs
    from truthfl.contracts.planning import PilotSide, Plan


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
    label_slope     Φ_i     money lost per unit of solo loss
    label_base              label pay at the expected solo loss: cost of labels and audition, and a margin
    label_cap               most label pay
    audition_pay            part of label_base for training alone; a client who does not pass does not get it
    computing_base          pay for computing, if all reports are delivered
    """

    kind: ClassVar[str] = "audition"
    has_cap: ClassVar[bool] = True
    rescales: ClassVar[bool] = True
    is_calibrated: ClassVar[bool] = True
    pays_by_joint_loss: ClassVar[bool] = False
    part_words: ClassVar[Mapping[str, str]] = {"label_pay": "labels", "computing_pay": "computing"}
    needs: ClassVar[frozenset[Evidence]] = ALWAYS_COLLECTED | {Evidence.SOLO_LOSS}
    formula: ClassVar[str] = (
        "label pay = label_base + label_slope * (solo_level + level_shift * solo_spread - solo_loss), less "
        "audition_pay if the model does not pass, from 0 to label_cap; computing pay = computing_base * delivered / "
        "asked, 0 if it does not pass; pay = their sum, rounded to whole units"
    )
    formula_keys: ClassVar[tuple[str, ...]] = ("terms.formula_labels", "terms.formula_fixed", "terms.formula_sum")
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
    audition_pay: FloatArray
    computing_base: FloatArray

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

        usual = plan_audition(inputs)
        if isinstance(usual, cls):
            return usual
        own = {field.name for field in fields(cls)} - {field.name for field in fields(usual)}
        if own:
            names = ", ".join(sorted(own))
            raise InputError(f"the contract {cls.kind!r} has additional terms, {names}; its plan must set them.")
        return cls(**{field.name: getattr(usual, field.name) for field in fields(usual)})

    def label_pay(self, observation: Observation, passed: NDArray[np.bool_] | None = None) -> FloatArray:
        """Pay for labels; 0 without a solo loss (NaN). No solo result stands for the expected one.

        passed  what `passes` returned, if it was called already
        """
        if observation.solo is None:
            return np.clip(self.label_base, 0.0, self.label_cap)
        passed = self.passes(observation) if passed is None else passed
        solo = np.asarray(observation.solo.loss, dtype=float)
        amount = self.label_base + self.label_slope * (self.expected_solo_loss(observation) - solo)
        amount = amount - np.where(passed, 0.0, self.audition_pay)
        return np.asarray(np.where(np.isnan(solo), 0.0, np.clip(amount, 0.0, self.label_cap)))

    def computing_pay(self, observation: Observation, passed: NDArray[np.bool_] | None = None) -> FloatArray:
        """Pay for computing; 0 for those who did not pass."""
        passed = self.passes(observation) if passed is None else passed
        return np.asarray(np.where(passed, delivered_share(self.computing_base, observation), 0.0))

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
        return {"label_pay": self.label_cap, "computing_pay": self.computing_base}

    def require_sound_terms(self) -> None:
        """Raise `InputError` unless all terms are finite, caps are not below pay, and quantities are not negative."""
        for name, values in self.terms().items():
            if not np.isfinite(values).all():
                raise InputError(f"the offer's {name} is not finite.")
            if (values < 0).any():
                raise InputError(f"the offer's {name} is {values.min()}; it must be a number from 0 on.")
        if (self.solo_spread <= 0).any():
            raise InputError("the offer's solo_spread is not above 0.")
        if (self.label_base > self.label_cap).any():
            raise InputError("the offer's label_cap is below its label_base: that much could never be paid.")

    def pay_range(self, lowest_loss: float, highest_loss: float) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Nothing, and the most of both parts."""
        return np.zeros_like(self.label_cap), np.asarray(sum(self.most_parts().values()))

    def deviation(self, expected_loss: float, loss_error: float) -> FloatArray:  # noqa: ARG002
        """Of label pay, which varies with the samples that a client happens to hold."""
        return np.asarray((self.label_cap - self.label_base) / CAP_DEVIATIONS)

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
            self.computing_words(money),
            coded(
                "explanation.audition_limits",
                "You never owe anything, and the most you can be paid is {most}. A model that is far worse than honest "
                "ones is stopped: its labels would harm the joint model.",
                most=money(float(sum(part[0] for part in self.most_parts().values()))),
            ),
        ]

    def computing_words(self, money: Callable[[float], str]) -> str:
        """How computing is paid, for the only client of this contract."""
        return coded(
            "explanation.audition_computing",
            "For computing: {amount}, in equal parts for the rounds in which your report is taken. What others do does "
            "not change your pay for it.",
            amount=money(float(self.computing_base[0])),
        )

    def calculation(self, observation: Observation) -> list[CalculationStep]:
        label_pay, computing = (float(np.ravel(part(observation))[0]) for part in (self.label_pay, self.computing_pay))
        level = float(np.ravel(self.expected_solo_loss(observation))[0])
        solo = level if observation.solo is None else float(np.ravel(observation.solo.loss)[0])
        solo_words: float | str = coded("calculation.no_model", "no model") if np.isnan(solo) else solo
        base, slope = float(self.label_base[0]), float(self.label_slope[0])
        labels = coded(
            "calculation.audition.labels",
            "for labels = base + slope × (expected loss of your own model − its loss), from 0 to the cap",
        )
        steps = [CalculationStep(labels, (base, "+", slope, "× (", level, "−", solo_words, ")"), label_pay)]
        if bool(np.ravel(self.passes(observation))[0]):
            steps.append(self.computing_step(observation, computing))
        else:
            words = coded(
                "calculation.audition.no_computing", "for computing: you did not take part in the joint training"
            )
            steps.append(CalculationStep(words, (), 0.0))
        total = coded("calculation.audition.total", "pay = for labels + for computing")
        return [*steps, CalculationStep(total, (label_pay, "+", computing), label_pay + computing)]

    def computing_step(self, observation: Observation, computing: float) -> CalculationStep:
        """The step of the calculation of the only client of this contract that leads to this computing pay."""
        words = coded("calculation.audition.computing", "for computing = amount × reports taken / asked for")
        numbers: tuple[float | int | str, ...] = (float(self.computing_base[0]),)
        if observation.delivered is not None and observation.asked is not None:
            counts = (int(np.ravel(observation.delivered)[0]), "/", int(np.ravel(observation.asked)[0]))
            numbers = (*numbers, "×", *counts)
        return CalculationStep(words, numbers, computing)
