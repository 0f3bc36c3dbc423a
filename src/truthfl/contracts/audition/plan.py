"""Plans the audition: labels, slopes, margins, caps, and the gain from other numbers of labels.

Pure functions of the pilot's measurements (`AuditionMeasurement`). docs/mechanism.md, section 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from truthfl.contracts.audition.joint import JointMeasurement, joint_terms
from truthfl.contracts.audition.labels import CAP_DEVIATIONS, LabelTask, best_labels
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.budget import Search
from truthfl.contracts.contract import MOST_PAY
from truthfl.contracts.many_clients import LEFT, MANY_TO_SEARCH, SAMPLE, every_nth, narrow
from truthfl.contracts.setting import Clients, FloatArray, IntArray, Training, batch_price, rounded_up
from truthfl.contracts.solo import GATE_DEVIATIONS, level_variance
from truthfl.errors import InfeasibleError, InputError

MOST_LOWERED = 64.0  # the largest −log of a factor on what a unit of loss is worth
SEARCH_STEPS, NARROWEST = 80, 2.0**-41


@dataclass(frozen=True, eq=False)
class AuditionMeasurement:
    """What the pilot measured for the audition contract.

    solo           loss of models trained alone, by number of labels
    joint_curve    A: the joint loss falls as A / (labels of all); joint_curve_error is its standard error
    audition_cost  (N,) cost of training alone once
    batch          of everybody, up to their labels, where computing is paid a fixed amount
    joint          where computing is paid by the joint loss; None: it is paid a fixed amount
    budget_bounds  what the budget bounds: "expected" pay, or the sum of "caps"
    most_pay       the largest cap, as a multiple of the cost of honest work
    """

    solo: SoloCurve
    joint_curve: float
    joint_curve_error: float
    audition_cost: FloatArray
    batch: float = 1.0
    joint: JointMeasurement | None = None
    budget_bounds: str = "expected"
    most_pay: float = MOST_PAY


@dataclass(frozen=True, eq=False)
class AuditionInputs:
    """The input of an audition's plan: the available clients, the measurements, and prices as in `Prices`.

    clients   their `dataset_size` is the number of samples that they hold
    """

    clients: Clients
    measured: AuditionMeasurement
    training: Training
    loss_value: float
    budget: float | None = None
    margin: float = 0.0
    confidence: float = 0.95


def label_task(inputs: AuditionInputs) -> LabelTask:
    """The task for these inputs: how many labels to ask of which clients."""
    measured, clients = inputs.measured, inputs.clients
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


@dataclass(frozen=True, eq=False)
class _Choice:
    """The contract for some value of a unit of loss; `pay` is what a budget bounds, 0 if there is none."""

    contract: Audition
    pay: float

    def is_next_to(self, other: _Choice) -> bool:
        """Whether at most one client is asked for one label or one sample more or less."""
        ours, theirs = self.contract, other.contract
        apart = np.abs(ours.labels - theirs.labels).sum() + np.abs(ours.batch_size - theirs.batch_size).sum()
        return bool(apart <= 1.0)


@dataclass(frozen=True, eq=False)
class _Choices:
    """What is asked of all clients, for any value of a unit of loss."""

    inputs: AuditionInputs

    @cached_property
    def task(self) -> LabelTask:
        return label_task(self.inputs)

    def at(self, stake: float) -> _Choice:
        """The contract, and its pay, if a unit of loss were worth `stake` of what it is worth."""
        contract = contract_for(self.inputs, best_labels(self.task, stake), stake, self.task)
        if self.inputs.budget is None:
            return _Choice(contract, 0.0)
        if self.inputs.measured.budget_bounds == "caps":
            return _Choice(contract, float(sum(part.sum() for part in contract.most_parts().values())))
        return _Choice(contract, float((contract.label_base + contract.computing_base).sum()))


def plan_audition(inputs: AuditionInputs) -> Audition:
    """The best contract for the server, within the budget. The clients' `dataset_size` is what they hold."""
    choices = _Choices(inputs)
    return (choices.at(1.0) if inputs.budget is None else _within_budget(choices, inputs.budget)).contract


def plan_as(contract: type[Audition], inputs: AuditionInputs) -> Audition:
    """The plan of a contract that may be custom: it may ask for other labels and batches, and has other terms."""
    chosen = plan_audition(inputs) if contract is Audition else contract.choose(inputs)
    labels, most = np.asarray(chosen.labels, dtype=float), inputs.clients.dataset_size
    if labels.shape != most.shape or not ((labels >= 1) & (labels == np.floor(labels)) & (labels <= most)).all():
        raise InputError(
            f"contract {contract.kind!r} plans labels that are not one whole number for each of {len(most)} clients, "
            "from 1 to their samples."
        )
    return chosen


def _within_budget(choices: _Choices, budget: float) -> _Choice:
    """The request at the highest value of a unit of loss whose pay is within the budget."""
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


def contract_for(
    inputs: AuditionInputs, labels: FloatArray, stake: float = 1.0, task: LabelTask | None = None
) -> Audition:
    """The contract for these labels:

        Φ_i = u_i n'_i / b(n'_i)        margin_i = z Φ_i s(n'_i) √(1 + level_variance)

    The cap is high enough that one honest client in 1,000 reaches it. `stake` lowers what a unit of loss is worth.
    """
    task = label_task(inputs) if task is None else task
    measured, price = inputs.measured, batch_price(inputs.clients, inputs.training)
    points, place = _points(labels)
    level, spread, slope = (of(points)[place] for of in (task.solo.level, task.solo.spread, task.solo.slope))
    error = spread * math.sqrt(1.0 + level_variance(task.count))
    cost = task.label_cost * labels
    label_slope = cost / slope
    label_base = cost + task.fixed_cost + task.margin_deviations * label_slope * error + inputs.margin
    batches = np.minimum(float(measured.batch), labels)
    usual = Audition(
        batch_size=batches,
        labels=labels,
        solo_level=level,
        solo_spread=spread,
        gate=GATE_DEVIATIONS * error,
        label_slope=label_slope,
        label_base=label_base,
        label_cap=label_base + CAP_DEVIATIONS * label_slope * error,
        audition_pay=task.fixed_cost.copy(),
        computing_base=price * batches,
    )
    if measured.joint is None:
        return usual
    return joint_terms(
        usual,
        measured.joint,
        curve=measured.joint_curve,
        price=price,
        stake=stake * inputs.loss_value,
        margin_deviations=task.margin_deviations,
        most_pay=measured.most_pay,
    )


def _points(labels: FloatArray) -> tuple[FloatArray, IntArray]:
    """Numbers of labels at which the curve is needed, and the position of each client's number among them.

    If clients are asked for few different numbers, the curve is interpolated once for each number.
    """
    points = np.arange(labels.min(), labels.max() + 2.0)
    if len(points) > len(labels) or (labels != np.floor(labels)).any():
        return labels, np.arange(len(labels))
    return points, (labels - points[0]).astype(np.intp)


@dataclass(frozen=True, eq=False)
class BestChoice:
    """The labels that serve each client best, (N,), and their gain over those asked for."""

    labels: FloatArray
    gain: FloatArray
    payoff: FloatArray


def expected_clipped(mean: ArrayLike, deviation: ArrayLike, high: ArrayLike) -> FloatArray:
    """E min(max(X, 0), high) of a normal X with this mean and standard deviation."""
    m, s, h = (np.asarray(values, dtype=float) for values in (mean, deviation, high))
    certain = s <= 1e-9 * (1.0 + np.abs(m))
    safe = np.where(certain, 1.0, s)
    low, top = -m / safe, (h - m) / safe
    ndtr = _distribution()
    inside = m * (ndtr(top) - ndtr(low)) + safe * (_density(low) - _density(top)) + h * (1.0 - ndtr(top))
    return np.asarray(np.where(certain, np.clip(m, 0.0, h), inside))


def _distribution() -> Callable[[ArrayLike], FloatArray]:
    """The normal distribution function; imported when needed."""
    from scipy.special import ndtr

    function: Callable[[ArrayLike], FloatArray] = ndtr
    return function


def _density(x: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * np.square(x)) / np.sqrt(2.0 * np.pi))


def expected_payoff(inputs: AuditionInputs, contract: Audition, labels: ArrayLike) -> FloatArray:
    """The expected payoff of each client with these labels, (…, N); computing costs what it pays."""
    measured, clients = inputs.measured, inputs.clients
    n = np.asarray(labels, dtype=float)
    peers = math.sqrt(1.0 + level_variance(len(clients)))
    rise, spread = measured.solo.level(n) - contract.solo_level, measured.solo.spread(n) * peers
    label_pay = expected_clipped(
        contract.label_base - contract.label_slope * rise, contract.label_slope * spread, contract.label_cap
    )
    label_cost = clients.labeling_cost / clients.dataset_size
    return np.asarray(label_pay - label_cost * n - measured.audition_cost)


def best_choice(inputs: AuditionInputs, contract: Audition) -> BestChoice:
    """A search over all numbers of labels on the solo curve, up to the samples held."""
    clients, numbers = inputs.clients, inputs.measured.solo.labels
    honest = expected_payoff(inputs, contract, contract.labels)
    every = np.arange(np.ceil(numbers[0]), np.floor(numbers[-1]) + 1.0)
    by_labels = expected_payoff(inputs, contract, every[:, None])
    by_labels = np.where(every[:, None] <= clients.dataset_size, by_labels, -np.inf)
    best = by_labels.max(axis=0)
    labels = np.where(best > honest, every[by_labels.argmax(axis=0)], contract.labels)
    return BestChoice(labels, np.maximum(best - honest, 0.0), honest)
