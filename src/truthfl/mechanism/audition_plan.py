"""Plans the audition contract: how many labels to ask of whom, batch sizes, slopes, margins and caps.

Pure functions of what was measured on the pilot (`AuditionMeasurement`). docs/mechanism.md, section 8. Imports
`audition`, `audition_labels`, `audition_batches`, `mechanism`, `setting`, `solo_curve`, `peer_level` and `checks`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from truthfl.errors import InfeasibleError, InputError
from truthfl.mechanism.audition import Audition
from truthfl.mechanism.audition_batches import best_batches
from truthfl.mechanism.audition_labels import CAP_DEVIATIONS, LabelTask, best_labels
from truthfl.mechanism.checks import FloatArray, rounded_up
from truthfl.mechanism.mechanism import PlanInputs
from truthfl.mechanism.peer_level import GATE_DEVIATIONS
from truthfl.mechanism.setting import batch_price
from truthfl.mechanism.solo_curve import SoloCurve

MOST_PAY = 3.0
BISECTIONS = 40
MOST_OF_LABEL_COST = 0.05  # share of u_i that one more label may bring a client by the joint loss alone
FLOOR_DEVIATIONS = 2.0  # standard deviations by which computing pay is above 0, if the margin suffices


@dataclass(frozen=True, eq=False)
class AuditionMeasurement:
    """What the pilot measured for the audition contract.

    solo           loss of models trained alone, by number of labels
    joint_curve    A: the joint loss falls as A / (labels of all); joint_curve_error is its standard error
    presence_curve the joint loss rises as this / (labels taking part) when clients are missing; A if None
    constant       the expected joint loss is constant + A / (labels of all) + Σ v_i / D_i
    sampling       (N,) v_i; all 0 if the joint loss does not show the batch size
    absence        (N,) by how much the joint loss rises without a client's reports, or with an echo in their place,
                   whichever is less
    loss_error     σ: standard deviation of the joint loss at settlement around the expected one
    audition_cost  (N,) cost of training alone once
    budget_bounds  what the budget bounds: "expected" pay, or the sum of "caps"
    most_pay       the largest cap, as a multiple of the cost of honest work
    """

    solo: SoloCurve
    joint_curve: float
    joint_curve_error: float
    constant: float
    sampling: FloatArray
    absence: FloatArray
    loss_error: float
    audition_cost: FloatArray
    budget_bounds: str = "expected"
    most_pay: float = MOST_PAY
    presence_curve: float | None = None

    def expected_loss(self, labels: FloatArray, batches: FloatArray) -> float:
        """The joint loss if all are honest."""
        return self.constant + self.joint_curve / float(labels.sum()) + float((self.sampling / batches).sum())


@dataclass(frozen=True, eq=False)
class AuditionPlan:
    """The contract and how it came about.

    labels     n'_i
    unproven   (N,) whether not computing would gain her more than is tolerated
    """

    contract: Audition
    labels: FloatArray
    unproven: np.ndarray


def label_task(inputs: PlanInputs) -> LabelTask:
    """The question how many labels to ask of whom, for these inputs."""
    measured, clients = require_measured(inputs), inputs.clients
    return LabelTask(
        solo=measured.solo,
        joint_curve=measured.joint_curve,
        joint_error=measured.joint_curve_error,
        label_cost=clients.labeling_cost / clients.dataset_size,
        fixed_cost=measured.audition_cost,
        samples=clients.dataset_size,
        loss_value=inputs.loss_value,
        confidence=inputs.confidence,
        most_pay=measured.most_pay,
    )


def plan_audition(inputs: PlanInputs) -> AuditionPlan:
    """The best plan for the server, within the budget. The clients' `dataset_size` are the samples that they hold."""
    if inputs.budget is None:
        return _plan(inputs, 1.0)
    budget = inputs.budget
    best = _plan(inputs, 1.0)
    if _bounded_sum(inputs, best.contract) <= budget:
        return best
    low, high = 0.0, 1.0
    while _bounded_sum(inputs, _plan(inputs, np.exp(-high)).contract) > budget:
        low, high = high, 2.0 * high
        if high > 60.0:
            least = _bounded_sum(inputs, _plan(inputs, np.exp(-high)).contract)
            raise InfeasibleError(
                f"budget is {budget:g}; the fewest labels from which a slope can be measured cost {least:g}, "
                f"{least - budget:g} more: raise the budget to {rounded_up(least):.10g} or leave clients out."
            )
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        if _bounded_sum(inputs, _plan(inputs, np.exp(-middle)).contract) > budget:
            low = middle
        else:
            high = middle
    return _plan(inputs, np.exp(-high))


def _bounded_sum(inputs: PlanInputs, contract: Audition) -> float:
    """What the budget bounds: total expected pay, or the sum of all caps."""
    if require_measured(inputs).budget_bounds == "caps":
        return float((contract.label_cap + contract.joint_cap).sum())
    return float((contract.label_base + contract.joint_base).sum())


def require_measured(inputs: PlanInputs) -> AuditionMeasurement:
    """The measurement; `InputError` if the job has none."""
    if inputs.audition is None:
        raise InputError(
            "the contract 'audition' is planned on pilot data, and this job has none; [contract] kind = \"lceme\" "
            "can be planned on constants."
        )
    return inputs.audition


def _plan(inputs: PlanInputs, stake: float) -> AuditionPlan:
    """The plan if a unit of loss were worth `stake` of what it is worth; all clients of the inputs take part."""
    measured, clients = require_measured(inputs), inputs.clients
    scaled = replace(inputs, loss_value=stake * inputs.loss_value)
    task = label_task(scaled)
    labels = best_labels(task)
    batches, unproven = best_batches(
        stake=scaled.loss_value,
        sampling=measured.sampling,
        price=batch_price(clients, inputs.training),
        margin_rate=task.margin_deviations * measured.loss_error,
        absence=measured.absence,
        label_pay=task.expected_pay(labels),
        labels=labels,
        most_slope=MOST_OF_LABEL_COST * task.label_cost * float(labels.sum()) ** 2 / max(measured.joint_curve, 1e-300),
    )
    return AuditionPlan(audition_contract(inputs, labels, batches), labels, unproven)


def audition_contract(inputs: PlanInputs, labels: FloatArray, batches: FloatArray) -> Audition:
    """The contract for these labels and batches:

        Φ^C_i = T q_i c_p D'_i² / v_i        Φ^L_i = (u_i − Φ^C_i A / N²) n'_i / b(n'_i),  N = Σ n'_j

    The margin is z times the standard deviation of total pay. It is divided between the two parts by their variances,
    but so that computing pay, which is never negative, is at least two standard deviations above 0: at 0 it would no
    longer depend on the loss. Caps are
    so far above the expected pay that one honest client in 1,000 reaches one, and at most `most_pay` times cost in all.
    """
    measured, clients = require_measured(inputs), inputs.clients
    count, total = len(clients), float(labels.sum())
    task = label_task(inputs)
    price = batch_price(clients, inputs.training)
    visible = measured.sampling > 0
    joint_slope = np.where(visible, price * np.square(batches) / np.where(visible, measured.sampling, 1.0), 0.0)
    own_worth = joint_slope * measured.joint_curve / total**2
    label_slope = np.maximum(task.label_cost - own_worth, 0.0) * labels / measured.solo.slope(labels)
    spread = measured.solo.spread(labels)
    label_error = label_slope * spread * np.sqrt(1.0 + 1.0 / count)
    joint_error = joint_slope * measured.loss_error
    variance = np.maximum(np.square(label_error) + np.square(joint_error), 1e-300)
    margin = task.margin_deviations * np.sqrt(variance)
    share = np.square(label_error) / variance
    above_floor = FLOOR_DEVIATIONS * joint_error - price * batches
    joint_margin = np.minimum(np.maximum(margin * (1.0 - share), above_floor), margin)
    label_base = task.label_cost * labels + measured.audition_cost + margin - joint_margin + inputs.margin
    joint_base = price * batches + joint_margin
    label_cap = label_base + CAP_DEVIATIONS * label_error
    cost = task.label_cost * labels + measured.audition_cost + price * batches
    most_joint = np.maximum(measured.most_pay * cost - label_cap, joint_base)
    noise = float((measured.sampling / batches).sum())
    presence = measured.joint_curve if measured.presence_curve is None else measured.presence_curve
    constant = measured.constant + noise + (measured.joint_curve - presence) / total
    return Audition(
        batch_size=batches,
        labels=labels,
        solo_level=measured.solo.level(labels),
        solo_spread=spread,
        gate=GATE_DEVIATIONS * np.sqrt(1.0 + 1.0 / count) * spread,
        label_slope=label_slope,
        label_base=label_base,
        label_cap=label_cap,
        joint_slope=joint_slope,
        joint_base=joint_base,
        joint_cap=np.minimum(joint_base + CAP_DEVIATIONS * joint_error, most_joint),
        joint_constant=np.full(count, constant),
        joint_curve=np.full(count, presence),
        total_labels=np.full(count, total),
        audition_pay=measured.audition_cost.copy(),
    )
