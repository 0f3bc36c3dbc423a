"""The audition for jobs in which computing is expensive: it is paid by the calibrated joint loss, as in LCEME.

    Φ^C_i = T q_i c_p D'_i² / v_i        computing pay = base + Φ^C_i (expected joint loss − joint loss)

docs/mechanism.md, sections 3 and 8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from truthfl.coded_text import coded
from truthfl.contracts.audition.labels import CAP_DEVIATIONS
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.contract import CalculationStep, Observation, People, Prices, delivered_share
from truthfl.contracts.setting import FloatArray
from truthfl.errors import InputError

if TYPE_CHECKING:
    from truthfl.contracts.planning import PilotSide, Plan

MOST_OF_LABEL_COST = 0.05  # share of u_i that one more label may bring a client by the joint loss alone
LEAST_CURVE = 1e-100  # of the joint loss by labels; keeps divisions finite
FLOOR_DEVIATIONS = 2.0  # standard deviations between computing pay and 0, if the margin suffices


@dataclass(frozen=True, eq=False)
class JointMeasurement:
    """What the pilot measured of computing, where it is paid by the joint loss.

    sampling        (N,) v_i: the expected joint loss is constant + A / (labels of all) + Σ v_i / D_i
    absence         (N,) by how much the joint loss rises without a client's reports, or with an echo in their place,
                    whichever is smaller
    constant        see `sampling`
    presence_curve  the joint loss rises as this / (labels taking part) when clients are missing
    loss_error      σ: standard deviation of the joint loss at settlement around the expected one
    """

    sampling: FloatArray
    absence: FloatArray
    constant: float
    presence_curve: float
    loss_error: float


@dataclass(frozen=True, eq=False)
class JointAudition(Audition):
    """The terms of `Audition`, and those of the joint part.

    joint_slope     Φ^C_i   money lost per unit of the joint model's calibrated test loss
    joint_cap               most computing pay
    joint_constant          the expected joint loss is joint_constant + joint_curve / (labels taking part)
    joint_curve     A
    total_labels            Σ n'_i of all clients
    """

    kind: ClassVar[str] = "audition-joint"
    counts_loss_rise: ClassVar[bool] = True
    pays_by_joint_loss: ClassVar[bool] = True
    formula: ClassVar[str] = (
        "label pay = label_base + label_slope * (solo_level + level_shift * solo_spread - solo_loss), less "
        "audition_pay if the model does not pass, from 0 to label_cap; computing pay = (computing_base + joint_slope * "
        "(joint_constant + joint_curve / present_labels + loss_rise - test_loss), from 0 to joint_cap) * delivered / "
        "asked, 0 if it does not pass; pay = their sum, rounded to whole units. loss_rise follows from "
        "loss_by_rounds and the number of rounds that changed the model"
    )
    formula_keys: ClassVar[tuple[str, ...]] = ("terms.formula_labels", "terms.formula_computing", "terms.formula_sum")
    dropping_out: ClassVar[str] = Audition.dropping_out
    dropping_out_key: ClassVar[str] = Audition.dropping_out_key

    joint_slope: FloatArray
    joint_cap: FloatArray
    joint_constant: FloatArray
    joint_curve: FloatArray
    total_labels: FloatArray

    @classmethod
    def plan_on(cls, pilot: PilotSide, people: People, prices: Prices) -> Plan:
        if cls is JointAudition:
            raise InputError(
                f'the contract is {cls.kind!r}; it must be "audition", whose plan pays computing by the joint loss '
                "where computing is expensive."
            )
        return super().plan_on(pilot, people, prices)

    def expected_joint_loss(self, observation: Observation) -> FloatArray:
        """The joint loss expected for the labels and rounds that took part."""
        present = self.total_labels if observation.present_labels is None else observation.present_labels
        expected = self.joint_constant + self.joint_curve / np.maximum(np.asarray(present, dtype=float), 1.0)
        return np.asarray(expected + observation.loss_rise)

    def computing_pay(self, observation: Observation, passed: NDArray[np.bool_] | None = None) -> FloatArray:
        passed = self.passes(observation) if passed is None else passed
        loss = np.asarray(observation.test_loss, dtype=float)
        amount = self.computing_base + self.joint_slope * (self.expected_joint_loss(observation) - loss)
        paid = delivered_share(np.clip(amount, 0.0, self.joint_cap), observation)
        return np.asarray(np.where(passed, paid, 0.0))

    def most_parts(self) -> dict[str, FloatArray]:
        return {"label_pay": self.label_cap, "computing_pay": self.joint_cap}

    def require_sound_terms(self) -> None:
        super().require_sound_terms()
        if (self.computing_base > self.joint_cap).any():
            raise InputError("the offer's joint_cap is below its computing_base: that much could never be paid.")
        if (self.total_labels < self.labels).any():
            raise InputError("the offer's total_labels are fewer than your own.")

    def deviation(self, expected_loss: float, loss_error: float) -> FloatArray:
        """Of label pay and computing pay together."""
        labels = super().deviation(expected_loss, loss_error)
        return np.asarray(np.sqrt(np.square(labels) + np.square(self.joint_slope * loss_error)))

    def computing_words(self, money: Callable[[float], str]) -> str:
        return coded(
            "explanation.audition_joint",
            "For computing: about {expected}, if the model that all train together turns out as expected of those "
            "who take part. Bad work of others does not lower your label pay.",
            expected=money(float(self.computing_base[0])),
        )

    def computing_step(self, observation: Observation, computing: float) -> CalculationStep:
        expected = float(np.ravel(self.expected_joint_loss(observation))[0])
        loss = float(np.ravel(observation.test_loss)[0])
        numbers: tuple[float | int | str, ...] = (
            float(self.computing_base[0]), "+", float(self.joint_slope[0]), "× (", expected, "−", loss, ")",
        )  # fmt: skip
        if observation.delivered is not None and observation.asked is not None:
            counts = (int(np.ravel(observation.delivered)[0]), "/", int(np.ravel(observation.asked)[0]))
            numbers = ("(", *numbers, ") ×", *counts)
        words = coded(
            "calculation.audition.joint",
            "for computing = base + slope × (expected loss of the joint model − its loss), from 0 to the cap, "
            "× reports taken / asked for",
        )
        return CalculationStep(words, numbers, computing)


def joint_terms(
    usual: Audition,
    measured: JointMeasurement,
    *,
    curve: float,
    price: FloatArray,
    stake: float,
    margin_deviations: float,
    most_pay: float,
) -> JointAudition:
    """The contract with a joint part, from the one without.

    The margin is z times the standard deviation of total pay, divided between both parts by their variances. But
    computing pay, which is never negative, stays at least two standard deviations above 0: at 0 it would no longer
    depend on the loss. One more label also lowers the joint loss, so the label slope is a little less.

    curve   A
    price   T q_i c_p
    stake   κ
    """
    labels, total, v = usual.labels, float(usual.labels.sum()), measured.sampling
    label_error = (usual.label_cap - usual.label_base) / CAP_DEVIATIONS  # Φ s √(1 + level_variance)
    cost = usual.label_base - usual.audition_pay - margin_deviations * label_error  # of labels, with the job's margin
    batches, _ = best_batches(
        stake=stake,
        sampling=v,
        price=price,
        margin_rate=margin_deviations * measured.loss_error,
        absence=measured.absence,
        label_pay=usual.label_base,
        labels=labels,
        most_slope=MOST_OF_LABEL_COST * cost / labels * total**2 / max(curve, LEAST_CURVE),
    )
    visible = v > 0
    joint_slope = np.where(visible, price * np.square(batches) / np.where(visible, v, 1.0), 0.0)
    less = np.clip(1.0 - joint_slope * curve / total**2 / (cost / labels), 0.0, 1.0)
    label_error = label_error * less
    joint_error = joint_slope * measured.loss_error
    variance = np.maximum(np.square(label_error) + np.square(joint_error), 1e-300)
    margin, computing = margin_deviations * np.sqrt(variance), price * batches
    joint_margin = np.maximum(margin * np.square(joint_error) / variance, FLOOR_DEVIATIONS * joint_error - computing)
    joint_margin = np.minimum(joint_margin, margin)
    label_base = cost + usual.audition_pay + margin - joint_margin
    computing_base = computing + joint_margin
    label_cap = label_base + CAP_DEVIATIONS * label_error
    most_joint = np.maximum(most_pay * (cost + usual.audition_pay + computing) - label_cap, computing_base)
    noise = float((v / batches).sum())
    constant = measured.constant + noise + (curve - measured.presence_curve) / total
    own: Mapping[str, FloatArray] = {field.name: getattr(usual, field.name) for field in fields(usual)}
    return JointAudition(
        **{
            **own,
            "batch_size": batches,
            "label_slope": usual.label_slope * less,
            "label_base": label_base,
            "label_cap": label_cap,
            "computing_base": computing_base,
        },
        joint_slope=joint_slope,
        joint_cap=np.minimum(computing_base + CAP_DEVIATIONS * joint_error, most_joint),
        joint_constant=np.broadcast_to(constant, labels.shape),
        joint_curve=np.broadcast_to(measured.presence_curve, labels.shape),
        total_labels=np.broadcast_to(total, labels.shape),
    )


FLAT_BATCH = 16  # asked for where the joint loss does not show the batch size; its pay is then a fixed amount
TOLERATED_GAIN = 0.01  # of pay, by not computing
NEWTON_STEPS = 3  # to about 1e-11 of the batch


def best_batches(
    *,
    stake: float,
    sampling: FloatArray,
    price: FloatArray,
    margin_rate: float,
    absence: FloatArray,
    label_pay: FloatArray,
    labels: FloatArray,
    most_slope: FloatArray | float = np.inf,
) -> tuple[FloatArray, np.ndarray]:
    """Whole batch sizes D'_i from 1 to n'_i, and a mask of clients who would gain more than tolerated by not computing.

    stake        κ
    sampling     v_i
    price        T q_i c_p
    margin_rate  z σ: the margin per unit of the joint slope
    absence      Δ_i, by how much the loss rises if a client does not compute
    label_pay    expected label pay
    labels       n'_i
    most_slope   the largest joint slope Φ at which the joint loss does not pay for further labels

    D'_i minimises κ v/D + P D + z σ P D²/v, where the last term is the margin. Not computing then saves P D and costs
    Φ Δ = P D² Δ/v. If the difference is more than 1% of pay, the client is asked for another batch: either the one at
    which the difference is 0, v/Δ, or one so small that it is 1%, whichever serves the server better.
    """
    visible = sampling > 0
    v = np.where(visible, sampling, 1.0)
    stakes, margins = stake * v, margin_rate * price

    def cost(batch: FloatArray, at: np.ndarray | slice = slice(None)) -> FloatArray:
        return np.asarray(stakes[at] / batch + price[at] * batch + margins[at] * np.square(batch) / v[at])

    with np.errstate(over="ignore"):
        most = np.minimum(most_slope * v / price, 1e18)
    largest = np.clip(np.floor(np.sqrt(most)), 1.0, labels)
    batch = np.minimum(_whole(cost, _stationary(stakes, v, price, margin_rate)), largest)
    batch = np.where(visible, batch, np.minimum(FLAT_BATCH, labels))
    tolerated = TOLERATED_GAIN * label_pay
    gain = idle_gain(batch, sampling, price, absence)
    gaining = np.flatnonzero(gain > tolerated)
    if len(gaining):
        there = absence[gaining] > 0
        less = np.clip(np.floor(tolerated[gaining] / price[gaining]), 1.0, batch[gaining])
        proven = np.maximum(np.ceil(v[gaining] / np.where(there, absence[gaining], 1.0)), 1.0)
        provable = there & visible[gaining] & (proven <= largest[gaining])
        better = provable & (cost(np.where(provable, proven, 1.0), gaining) < cost(less, gaining))
        batch[gaining] = np.where(better, proven, less)
        gain[gaining] = idle_gain(batch[gaining], sampling[gaining], price[gaining], absence[gaining])
    return batch, gain > tolerated * (1.0 + 1e-9)


def idle_gain(batch: FloatArray, sampling: FloatArray, price: FloatArray, absence: FloatArray) -> FloatArray:
    """What a client gains by not computing: P D (1 − D Δ/v), or P D where pay does not depend on the loss."""
    visible = sampling > 0
    lost = np.minimum(batch * np.maximum(absence, 0.0) / np.where(visible, sampling, 1.0), 1.0) * visible
    return np.asarray(price * batch * np.maximum(1.0 - lost, 0.0))


def _stationary(stakes: FloatArray, v: FloatArray, price: FloatArray, margin_rate: float) -> FloatArray:
    """The D with κ v/D² = P (1 + 2 z σ D/v), by Newton's method.

    With h = √(κ v/P), x = D/h and c = 2 z σ h/v that is x² (1 + c x) = 1. From (1 + c)^(−1/3), which is at most a few
    per cent too large, each step squares the error.
    """
    highest: FloatArray = np.sqrt(stakes / price)
    if margin_rate == 0.0:
        return highest
    c = highest * (2.0 * margin_rate) / v
    x: FloatArray = np.exp(np.log(c + 1.0) * (-1.0 / 3.0))
    for _ in range(NEWTON_STEPS):
        cx = c * x
        x = x - ((cx + 1.0) * x * x - 1.0) / ((3.0 * cx + 2.0) * x)
    return x * highest


def _whole(cost: Callable[[FloatArray], FloatArray], batch: FloatArray) -> FloatArray:
    """The whole neighbour with the lower cost."""
    below = np.maximum(np.floor(batch), 1.0)
    return below + (cost(below) > cost(below + 1.0))
