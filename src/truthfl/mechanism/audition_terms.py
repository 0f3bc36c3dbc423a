"""The terms of pay of the audition contract for given labels and batches: slopes, bases and caps.

docs/mechanism.md, section 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from truthfl.mechanism.audition_labels import CAP_DEVIATIONS
from truthfl.mechanism.checks import FloatArray, IntArray
from truthfl.mechanism.peer_level import GATE_DEVIATIONS, level_variance
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
        level, spread, slope = (of(points)[place] for of in (self.solo.level, self.solo.spread, self.solo.slope))
        gate = GATE_DEVIATIONS * math.sqrt(1.0 + level_variance(self.count)) * spread
        return ClientPay(level, spread, gate, *self._pay(total, slope, spread, labels, batches, *self.arrays))

    def sum_of_pay(self, labels: FloatArray, batches: FloatArray, total: float, *, caps: bool) -> float:
        """The sum of expected pay, or of the caps of pay."""
        points, place = _points(labels)
        spread, slope = (of(points)[place] for of in (self.solo.spread, self.solo.slope))
        if caps:
            _, _, label_cap, _, _, joint_cap = self._pay(total, slope, spread, labels, batches, *self.arrays)
            return float((label_cap + joint_cap).sum())
        found = self._errors(total, slope, spread, labels, batches, *self.arrays)
        labeling, computing, margin = found[0], found[1], found[6]
        return float((margin + labeling + computing + self.margin).sum())

    @property
    def arrays(self) -> tuple[FloatArray, ...]:
        """(N,) each: what the terms of a client depend on besides her labels and batch."""
        return self.label_cost, self.audition_cost, self.price, self.sampling

    def _errors(
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
        """Costs of labels and computing, both slopes, both standard deviations, the margin, the labels' share in it."""
        visible = sampling > 0
        joint_slope = np.where(visible, price * np.square(batches) / np.where(visible, sampling, 1.0), 0.0)
        own_worth = joint_slope * self.joint_curve / total**2
        label_slope = np.maximum(label_cost - own_worth, 0.0) * labels / slope
        label_error = label_slope * spread * math.sqrt(1.0 + level_variance(self.count))
        joint_error = joint_slope * self.loss_error
        variance = np.maximum(np.square(label_error) + np.square(joint_error), 1e-300)
        share = np.square(label_error) / variance
        margin = self.margin_deviations * np.sqrt(variance)
        labeling = label_cost * labels + audition_cost
        return labeling, price * batches, label_slope, joint_slope, label_error, joint_error, margin, share

    def _pay(self, total: float, *arrays: FloatArray) -> tuple[FloatArray, ...]:
        """Slope, base and cap of label pay, then of computing pay."""
        labeling, computing, label_slope, joint_slope, label_error, joint_error, margin, share = self._errors(
            total, *arrays
        )
        joint_margin = np.maximum(margin * (1.0 - share), FLOOR_DEVIATIONS * joint_error - computing)
        joint_margin = np.minimum(joint_margin, margin)
        label_base = labeling + margin - joint_margin + self.margin
        joint_base = computing + joint_margin
        label_cap = label_base + CAP_DEVIATIONS * label_error
        most_joint = np.maximum(self.most_pay * (labeling + computing) - label_cap, joint_base)
        joint_cap = np.minimum(joint_base + CAP_DEVIATIONS * joint_error, most_joint)
        return label_slope, label_base, label_cap, joint_slope, joint_base, joint_cap


def _points(labels: FloatArray) -> tuple[FloatArray, IntArray]:
    """Numbers of labels at which the curve is to be known, and the place of each client's among them.

    Where clients are asked for few different numbers, the curve is interpolated once for each number.
    """
    points = np.arange(labels.min(), labels.max() + 2.0)
    if len(points) > len(labels) or (labels != np.floor(labels)).any():
        return labels, np.arange(len(labels))
    return points, (labels - points[0]).astype(np.intp)
