"""The terms of pay of the audition contract for given labels and batches: slopes, bases and caps.

docs/mechanism.md, section 8. Imports `audition_labels`, `blocks`, `peer_level`, `solo_curve` and `checks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from truthfl.mechanism.audition_labels import CAP_DEVIATIONS
from truthfl.mechanism.blocks import CLIENTS_PER_BLOCK, in_blocks
from truthfl.mechanism.checks import FloatArray, IntArray
from truthfl.mechanism.peer_level import GATE_DEVIATIONS
from truthfl.mechanism.solo_curve import SoloCurve

FLOOR_DEVIATIONS = 2.0  # standard deviations by which computing pay is above 0, if the margin suffices


class ClientPay(NamedTuple):
    """(N,) The terms of pay of each client, as `Audition` names them."""

    solo_level: FloatArray
    solo_spread: FloatArray
    gate: FloatArray
    label_slope: FloatArray
    label_base: FloatArray
    label_cap: FloatArray
    joint_slope: FloatArray
    joint_base: FloatArray
    joint_cap: FloatArray


@dataclass(frozen=True, eq=False)
class PayTerms:
    """Computes the terms of pay:

        Φ^C_i = T q_i c_p D'_i² / v_i        Φ^L_i = (u_i − Φ^C_i A / N²) n'_i / b(n'_i),  N = Σ n'_j

    The margin is z times the standard deviation of total pay. It is divided between the two parts by their variances,
    but so that computing pay, which is never negative, is at least two standard deviations above 0: at 0 it would no
    longer depend on the loss. Caps are so far above the expected pay that one honest client in 1,000 reaches one, and
    at most `most_pay` times cost in all.

    solo                loss of models trained alone, by number of labels
    joint_curve         A
    loss_error          σ
    margin_deviations   z
    margin              money added to each client's pay
    count               how many clients take part
    label_cost, audition_cost, price, sampling   (N,) u_i, cost of training alone, T q_i c_p, v_i
    """

    solo: SoloCurve
    joint_curve: float
    loss_error: float
    margin_deviations: float
    margin: float
    most_pay: float
    count: int
    label_cost: FloatArray
    audition_cost: FloatArray
    price: FloatArray
    sampling: FloatArray

    def of_clients(self, labels: FloatArray, batches: FloatArray, total: float) -> ClientPay:
        """The terms for these labels and batches; `total` is N, the labels of all."""
        points, place = _points(labels)
        level, spread, slope = (of(points) for of in (self.solo.level, self.solo.spread, self.solo.slope))

        def terms(place: IntArray, *arrays: FloatArray) -> tuple[FloatArray, ...]:
            own = spread[place]
            gate = GATE_DEVIATIONS * np.sqrt(1.0 + 1.0 / self.count) * own
            return level[place], own, gate, *self._pay(total, slope[place], own, *arrays)

        return ClientPay(*in_blocks(terms, place, labels, batches, *self._arrays))

    def sum_of_pay(self, labels: FloatArray, batches: FloatArray, total: float, *, caps: bool) -> float:
        """Total expected pay, or the sum of all caps, for these labels and batches."""
        points, place = _points(labels)
        spread, slope = self.solo.spread(points), self.solo.slope(points)

        def pay(place: IntArray, *arrays: FloatArray) -> FloatArray:
            _, label_base, label_cap, _, joint_base, joint_cap = self._pay(total, slope[place], spread[place], *arrays)
            return label_cap + joint_cap if caps else label_base + joint_base

        return float(in_blocks(pay, place, labels, batches, *self._arrays).sum())

    @property
    def _arrays(self) -> tuple[FloatArray, ...]:
        return self.label_cost, self.audition_cost, self.price, self.sampling

    def _pay(
        self,
        total: float,
        slope: FloatArray,
        spread: FloatArray,
        labels: FloatArray,
        batches: FloatArray,
        label_cost: FloatArray,
        audition_cost: FloatArray,
        price: FloatArray,
        sampling: FloatArray,
    ) -> tuple[FloatArray, ...]:
        """Slope, base and cap of label pay, then of computing pay."""
        visible = sampling > 0
        if visible.all():
            joint_slope = price * np.square(batches) / sampling
        else:
            joint_slope = np.where(visible, price * np.square(batches) / np.where(visible, sampling, 1.0), 0.0)
        own_worth = joint_slope * self.joint_curve / total**2
        label_slope = np.maximum(label_cost - own_worth, 0.0) * labels / slope
        label_error = label_slope * spread * np.sqrt(1.0 + 1.0 / self.count)
        joint_error = joint_slope * self.loss_error
        label_variance = np.square(label_error)
        variance = np.maximum(label_variance + np.square(joint_error), 1e-300)
        margin = self.margin_deviations * np.sqrt(variance)
        label_variance /= variance
        computing = price * batches
        joint_margin = np.maximum(margin * (1.0 - label_variance), FLOOR_DEVIATIONS * joint_error - computing)
        np.minimum(joint_margin, margin, out=joint_margin)
        labeling = label_cost * labels + audition_cost
        label_base = labeling + margin - joint_margin + self.margin
        joint_base = computing + joint_margin
        label_cap = label_base + CAP_DEVIATIONS * label_error
        most_joint = np.maximum(self.most_pay * (labeling + computing) - label_cap, joint_base)
        joint_cap = np.minimum(joint_base + CAP_DEVIATIONS * joint_error, most_joint)
        return label_slope, label_base, label_cap, joint_slope, joint_base, joint_cap


def _points(labels: FloatArray) -> tuple[FloatArray, IntArray]:
    """Numbers of labels at which the curve is to be known, and the place of each client's among them.

    Many clients are asked for few different numbers, and the curve is interpolated once for each number.
    """
    if len(labels) > CLIENTS_PER_BLOCK:
        first, last = float(labels.min()), float(labels.max())
        if last - first < len(labels) and first == np.floor(first):
            place = in_blocks(lambda own: (own - first).astype(np.int32), labels)
            points = np.arange(first, last + 2.0)
            if bool(in_blocks(lambda own, at: points[at] == own, labels, place).all()):
                return points, place
    return labels, np.arange(len(labels))
