"""Plans the audition contract: how many labels to ask of whom, batch sizes, slopes, margins and caps.

Pure functions of what was measured on the pilot (`AuditionMeasurement`). docs/mechanism.md, section 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from truthfl.errors import InfeasibleError, InputError
from truthfl.mechanism.audition import Audition
from truthfl.mechanism.audition_batches import best_batches
from truthfl.mechanism.audition_labels import LabelTask, best_labels
from truthfl.mechanism.audition_terms import PayTerms
from truthfl.mechanism.budget_search import Search
from truthfl.mechanism.checks import FloatArray, rounded_up
from truthfl.mechanism.many_clients import LEFT, MANY_TO_SEARCH, SAMPLE, every_nth, narrow
from truthfl.mechanism.mechanism import PlanInputs
from truthfl.mechanism.setting import batch_price
from truthfl.mechanism.solo_curve import SoloCurve

MOST_PAY = 3.0
MOST_OF_LABEL_COST = 0.05  # share of u_i that one more label may bring a client by the joint loss alone
LEAST_CURVE = 1e-100  # of the joint loss by labels, so that what is divided by it stays finite
MOST_LOWERED = 64.0  # the largest −log of a factor on what a unit of loss is worth
SEARCH_STEPS, NARROWEST = 80, 2.0**-41


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
    unproven   (N,) whether not computing would gain her more than is tolerated; not known of custom contracts
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


def require_measured(inputs: PlanInputs) -> AuditionMeasurement:
    """The measurement; `InputError` if the job has none."""
    if inputs.audition is None:
        raise InputError(
            "the contract 'audition' is planned on pilot data, and this job has none; [contract] kind = \"lceme\" "
            "can be planned on constants."
        )
    return inputs.audition


@dataclass(frozen=True, eq=False)
class _Choice:
    """Labels and batches of some clients, who gains more than is tolerated by not computing, and the sum of their pay.

    pay   what a budget bounds: total expected pay, or the sum of all caps; 0 if there is no budget
    """

    labels: FloatArray
    batches: FloatArray
    unproven: np.ndarray
    pay: float

    def is_next_to(self, other: _Choice) -> bool:
        """Whether at most one client is asked for one label or one sample more or less."""
        return bool(np.abs(self.labels - other.labels).sum() + np.abs(self.batches - other.batches).sum() <= 1.0)


@dataclass(frozen=True, eq=False)
class _Choices:
    """What is asked of all clients, for any value of a unit of loss."""

    inputs: PlanInputs

    @cached_property
    def task(self) -> LabelTask:
        return label_task(self.inputs)

    @cached_property
    def terms(self) -> PayTerms:
        measured, task = require_measured(self.inputs), self.task
        return PayTerms(
            solo=measured.solo,
            joint_curve=measured.joint_curve,
            loss_error=measured.loss_error,
            margin_deviations=task.margin_deviations,
            margin=self.inputs.margin,
            most_pay=measured.most_pay,
            count=task.count,
            label_cost=task.label_cost,
            audition_cost=task.fixed_cost,
            price=batch_price(self.inputs.clients, self.inputs.training),
            sampling=measured.sampling,
        )

    def at(self, stake: float) -> _Choice:
        """What is asked, and its pay, if a unit of loss were worth `stake` of what it is worth."""
        measured, task = require_measured(self.inputs), self.task
        labels = best_labels(task, stake)
        total = float(labels.sum())
        label_cost, _, price, sampling = self.terms.arrays
        batches, unproven = best_batches(
            stake=stake * self.inputs.loss_value,
            sampling=sampling,
            price=price,
            margin_rate=task.margin_deviations * measured.loss_error,
            absence=measured.absence,
            label_pay=task.expected_pay(labels),
            labels=labels,
            most_slope=MOST_OF_LABEL_COST * label_cost * total**2 / max(measured.joint_curve, LEAST_CURVE),
        )
        if self.inputs.budget is None:
            return _Choice(labels, batches, unproven, 0.0)
        caps = measured.budget_bounds == "caps"
        return _Choice(labels, batches, unproven, self.terms.sum_of_pay(labels, batches, total, caps=caps))


def plan_audition(inputs: PlanInputs) -> AuditionPlan:
    """The best plan for the server, within the budget. The clients' `dataset_size` are the samples that they hold."""
    choices = _Choices(inputs)
    chosen = choices.at(1.0) if inputs.budget is None else _within_budget(choices, inputs.budget)
    return AuditionPlan(
        audition_contract(inputs, chosen.labels, chosen.batches, choices.terms), chosen.labels, chosen.unproven
    )


def plan_as(mechanism: type[Audition], inputs: PlanInputs) -> AuditionPlan:
    """The plan of a contract that may be one's own: it may ask for other labels and batches, and has other terms."""
    usual = plan_audition(inputs)
    if mechanism is Audition:
        return usual
    contract = mechanism.plan(inputs)
    labels, most = np.asarray(contract.labels, dtype=float), inputs.clients.dataset_size
    if (
        labels.shape != usual.labels.shape
        or not ((labels >= 1) & (labels == np.floor(labels)) & (labels <= most)).all()
    ):
        raise InputError(
            f"mechanism {mechanism.kind!r} plans labels that are not one whole number for each of {len(most)} clients, "
            "from 1 to her samples."
        )
    return AuditionPlan(contract, labels, np.zeros_like(usual.unproven))


def _within_budget(choices: _Choices, budget: float) -> _Choice:
    """What is asked at the highest value of a unit of loss at which it is paid no more than the budget."""
    best = choices.at(1.0)
    if best.pay <= budget:
        return best
    count, known = choices.task.count, {0.0: best}  # by x: a unit of loss is worth e^-x of what it is worth

    def sum_at(x: float) -> float:
        for past in known.keys() - {search.low, search.high}:
            del known[past]
        known[x] = choices.at(float(np.exp(-x)))
        return known[x].pay

    def is_done(low: float, high: float) -> bool:
        return low in known and known[low].is_next_to(known[high])

    search = Search(sum_at, budget, best.pay, LEFT * budget if count >= MANY_TO_SEARCH else 0.0, is_done)
    if count >= MANY_TO_SEARCH:
        some = _Choices(every_nth(choices.inputs, count // SAMPLE))
        narrow(search, lambda x: some.at(float(np.exp(-x))).pay)
    if not search.bracket(MOST_LOWERED):
        least = search.over + budget
        raise InfeasibleError(
            f"budget is {budget:g}; the fewest labels from which a slope can be measured cost {least:g}, "
            f"{least - budget:g} more: raise the budget to {rounded_up(least):.10g} or leave clients out."
        )
    return known[search.finish(SEARCH_STEPS, NARROWEST)]


def audition_contract(
    inputs: PlanInputs, labels: FloatArray, batches: FloatArray, terms: PayTerms | None = None
) -> Audition:
    """The contract for these labels and batches; docs of its terms of pay are at `PayTerms`."""
    measured, count, total = require_measured(inputs), len(labels), float(labels.sum())
    pay = (_Choices(inputs).terms if terms is None else terms).of_clients(labels, batches, total)
    noise = float((measured.sampling / batches).sum())
    presence = measured.joint_curve if measured.presence_curve is None else measured.presence_curve
    constant = measured.constant + noise + (measured.joint_curve - presence) / total
    return Audition(
        batch_size=batches,
        labels=labels,
        solo_level=pay.solo_level,
        solo_spread=pay.solo_spread,
        gate=pay.gate,
        label_slope=pay.label_slope,
        label_base=pay.label_base,
        label_cap=pay.label_cap,
        joint_slope=pay.joint_slope,
        joint_base=pay.joint_base,
        joint_cap=pay.joint_cap,
        joint_constant=np.broadcast_to(constant, count),
        joint_curve=np.broadcast_to(float(presence), count),
        total_labels=np.broadcast_to(total, count),
        audition_pay=measured.audition_cost.copy(),
    )
