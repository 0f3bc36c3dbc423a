"""Plans the audition: labels, batch sizes, slopes, margins, caps, and the gain from other labels or batches.

Pure functions of the pilot's measurements (`AuditionMeasurement`).

Losses vary normally around the curves. Pay is kept between 0 and the caps. A client who fails the gate does not
compute. docs/mechanism.md, section 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from truthfl.contracts.audition.labels import CAP_DEVIATIONS, LabelTask, best_labels
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.budget import Search
from truthfl.contracts.contract import MOST_PAY
from truthfl.contracts.many_clients import LEFT, MANY_TO_SEARCH, SAMPLE, every_nth, narrow
from truthfl.contracts.setting import Clients, FloatArray, IntArray, Training, batch_price, rounded_up
from truthfl.contracts.solo import GATE_DEVIATIONS, level_variance
from truthfl.errors import InfeasibleError, InputError

MOST_OF_LABEL_COST = 0.05  # share of u_i that one more label may bring a client by the joint loss alone
LEAST_CURVE = 1e-100  # of the joint loss by labels; keeps divisions finite
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
                   whichever is smaller
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


@dataclass(frozen=True, eq=False)
class AuditionPlan:
    """The contract and how it was made.

    labels     n'_i
    unproven   (N,) whether not computing would gain a client more than is tolerated; unknown for custom contracts
    """

    contract: Audition
    labels: FloatArray
    unproven: np.ndarray


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
    """Labels and batches of some clients, their gain from not computing, and their total pay.

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

    inputs: AuditionInputs

    @cached_property
    def task(self) -> LabelTask:
        return label_task(self.inputs)

    @cached_property
    def terms(self) -> PayTerms:
        measured, task = self.inputs.measured, self.task
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

    def at(self, value_share: float) -> _Choice:
        """What is asked, and its pay, if a unit of loss were worth this share of what it is worth."""
        measured, task = self.inputs.measured, self.task
        labels = best_labels(task, value_share)
        total = float(labels.sum())
        label_cost, _, price, sampling = self.terms.arrays
        batches, unproven = best_batches(
            loss_value=value_share * self.inputs.loss_value,
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


def plan_audition(inputs: AuditionInputs) -> AuditionPlan:
    """The best plan for the server, within the budget. The clients' `dataset_size` is what they hold."""
    choices = _Choices(inputs)
    chosen = choices.at(1.0) if inputs.budget is None else _within_budget(choices, inputs.budget)
    return AuditionPlan(
        audition_contract(inputs, chosen.labels, chosen.batches, choices.terms), chosen.labels, chosen.unproven
    )


def plan_as(contract_type: type[Audition], inputs: AuditionInputs) -> AuditionPlan:
    """The plan of a contract that may be custom: it may ask for other labels and batches, and has other terms."""
    usual = plan_audition(inputs)
    if contract_type is Audition:
        return usual
    contract = contract_type.choose(inputs)
    labels, most = np.asarray(contract.labels, dtype=float), inputs.clients.dataset_size
    if (
        labels.shape != usual.labels.shape
        or not ((labels >= 1) & (labels == np.floor(labels)) & (labels <= most)).all()
    ):
        raise InputError(
            f"the contract {contract_type.kind!r} plans labels that are not one whole number for each of {len(most)} "
            "clients, from 1 to their samples."
        )
    return AuditionPlan(contract, labels, np.zeros_like(usual.unproven))


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


def audition_contract(
    inputs: AuditionInputs, labels: FloatArray, batches: FloatArray, terms: PayTerms | None = None
) -> Audition:
    """The contract for these labels and batches; see `PayTerms` for its terms of pay."""
    measured, count, total = inputs.measured, len(labels), float(labels.sum())
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


FLOOR_DEVIATIONS = 2.0  # standard deviations between computing pay and 0, if the margin suffices


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

    The margin is z times the standard deviation of total pay. It is divided between the two parts by their variances.
    But computing pay, which is never negative, stays at least two standard deviations above 0: at 0 it would no longer
    depend on the loss. Caps are high enough that one honest client in 1,000 reaches one. In total they are at most
    `most_pay` times the cost.

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
        """(N,) each: what the terms of a client depend on, apart from their labels and batch."""
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
    """Numbers of labels at which the curve is needed, and the position of each client's number among them.

    If clients are asked for few different numbers, the curve is interpolated once for each number.
    """
    points = np.arange(labels.min(), labels.max() + 2.0)
    if len(points) > len(labels) or (labels != np.floor(labels)).any():
        return labels, np.arange(len(labels))
    return points, (labels - points[0]).astype(np.intp)


FLAT_BATCH = 16  # asked for where the joint loss does not show the batch size; its pay is then a fixed amount
TOLERATED_GAIN = 0.01  # of pay, by not computing
NEWTON_STEPS = 3  # to about 1e-11 of the batch


def best_batches(
    *,
    loss_value: float,
    sampling: FloatArray,
    price: FloatArray,
    margin_rate: float,
    absence: FloatArray,
    label_pay: FloatArray,
    labels: FloatArray,
    most_slope: FloatArray | float = np.inf,
) -> tuple[FloatArray, np.ndarray]:
    """Whole batch sizes D'_i from 1 to n'_i, and a mask of clients who would gain more than tolerated by not computing.

    loss_value   κ
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
    stakes, margins = loss_value * v, margin_rate * price

    def cost(batch: FloatArray, at: np.ndarray | slice = slice(None)) -> FloatArray:
        return np.asarray(stakes[at] / batch + price[at] * batch + margins[at] * np.square(batch) / v[at])

    with np.errstate(over="ignore"):
        most = np.minimum(most_slope * v / price, 1e18)
    largest = np.clip(np.floor(np.sqrt(most)), 1.0, labels)
    batch = np.minimum(_whole(cost, _stationary(stakes, v, price, margin_rate)), largest)
    batch = np.where(visible, batch, np.minimum(FLAT_BATCH, labels))
    tolerated = TOLERATED_GAIN * label_pay
    gain = _gain(batch, visible, v, price, absence)
    gaining = np.flatnonzero(gain > tolerated)
    if len(gaining):
        there = absence[gaining] > 0
        less = np.clip(np.floor(tolerated[gaining] / price[gaining]), 1.0, batch[gaining])
        proven = np.maximum(np.ceil(v[gaining] / np.where(there, absence[gaining], 1.0)), 1.0)
        provable = there & visible[gaining] & (proven <= largest[gaining])
        better = provable & (cost(np.where(provable, proven, 1.0), gaining) < cost(less, gaining))
        batch[gaining] = np.where(better, proven, less)
        gain[gaining] = _gain(batch[gaining], visible[gaining], v[gaining], price[gaining], absence[gaining])
    return batch, gain > tolerated * (1.0 + 1e-9)


def _gain(batch: FloatArray, visible: np.ndarray, v: FloatArray, price: FloatArray, absence: FloatArray) -> FloatArray:
    """What a client gains by not computing: P D (1 − D Δ/v), or P D where pay does not depend on the loss."""
    lost = np.minimum(batch * np.maximum(absence, 0.0) / v, 1.0) * visible
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


BATCHES_TRIED = 24


@dataclass(frozen=True, eq=False)
class BestChoice:
    """The labels and batch that serve each client best, (N,), and their gain over those asked for."""

    labels: FloatArray
    batch_size: FloatArray
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


def expected_payoff(inputs: AuditionInputs, contract: Audition, labels: ArrayLike, batch_size: ArrayLike) -> FloatArray:
    """The expected payoff of each client with these labels and batch, (…, N), the others being honest."""
    measured, clients = inputs.measured, inputs.clients
    n, batch = np.asarray(labels, dtype=float), np.asarray(batch_size, dtype=float)
    peers = np.sqrt(1.0 + 1.0 / len(clients))
    rise, spread = measured.solo.level(n) - contract.solo_level, measured.solo.spread(n) * peers
    label_pay = expected_clipped(
        contract.label_base - contract.label_slope * rise, contract.label_slope * spread, contract.label_cap
    )
    passing = _distribution()((contract.gate - rise) / np.maximum(spread, 1e-300))
    total = contract.total_labels
    worse = measured.joint_curve * (1.0 / (total - contract.labels + n) - 1.0 / total)
    worse = worse + measured.sampling * (1.0 / batch - 1.0 / contract.batch_size)
    computing_pay = expected_clipped(
        contract.joint_base - contract.joint_slope * worse,
        contract.joint_slope * measured.loss_error,
        contract.joint_cap,
    )
    computing = passing * (computing_pay - batch_price(clients, inputs.training) * batch)
    label_cost = clients.labeling_cost / clients.dataset_size
    return np.asarray(label_pay + computing - label_cost * n - measured.audition_cost)


def best_choice(inputs: AuditionInputs, contract: Audition) -> BestChoice:
    """A search over all numbers of labels on the solo curve, and batches from 1 to the samples held.

    First other numbers of labels are tried with the requested batch, then other batches with the best labels.
    """
    clients, numbers = inputs.clients, inputs.measured.solo.labels
    honest = expected_payoff(inputs, contract, contract.labels, contract.batch_size)
    every = np.arange(np.ceil(numbers[0]), np.floor(numbers[-1]) + 1.0)
    by_labels = expected_payoff(inputs, contract, every[:, None], contract.batch_size)
    by_labels = np.where(every[:, None] <= clients.dataset_size, by_labels, -np.inf)
    labels = every[by_labels.argmax(axis=0)]
    labels = np.where(by_labels.max(axis=0) > honest, labels, contract.labels)
    share = np.linspace(0.0, 1.0, BATCHES_TRIED)[:, None]
    batches = np.append(np.rint(np.exp(share * np.log(clients.dataset_size))), contract.batch_size[None], axis=0)
    by_batch = expected_payoff(inputs, contract, labels, batches)
    best = by_batch.argmax(axis=0)
    return BestChoice(labels, batches[best, np.arange(len(clients))], by_batch.max(axis=0) - honest, honest)
