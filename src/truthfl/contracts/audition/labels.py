"""How many labels the audition asks of each client, and which clients it asks.

The server minimises κ A / N + Σ pay_i over the numbers of labels n_i, N = Σ n_i, where label pay is the cost of the
labels and a margin for its spread. docs/mechanism.md, section 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.many_clients import MANY, cheapest_by_thresholds
from truthfl.contracts.setting import FloatArray, IntArray
from truthfl.errors import InfeasibleError

CAP_DEVIATIONS = 3.09  # of honest pay, one in 1,000 is above the cap
SLOPE_ERRORS = 3.0  # a slope is used if it is at least this many standard errors above 0
TOLERATED_GAIN = (
    0.03  # of label cost, by labeling another number on the measured curve, whose own error is about this large
)
CLEAR_ERRORS = 2.0  # a client is left out if their worth is this many standard errors below their pay


@dataclass(frozen=True, eq=False)
class LabelTask:
    """The task: how many labels to ask of which clients.

    solo         loss of models trained alone, by number of labels
    joint_curve  A; joint_error is its standard error
    label_cost   (N,) u_i, cost of one label
    fixed_cost   (N,) cost of taking part in the job
    samples      (N,) samples that each client holds
    loss_value   κ
    confidence   with which pay covers cost
    most_pay     the largest cap, as a multiple of cost
    """

    solo: SoloCurve
    joint_curve: float
    joint_error: float
    label_cost: FloatArray
    fixed_cost: FloatArray
    samples: IntArray
    loss_value: float
    confidence: float
    most_pay: float

    @property
    def count(self) -> int:
        """How many clients take part."""
        return len(self.samples)

    @cached_property
    def margin_deviations(self) -> float:
        """z: the margin in standard deviations of pay.

        A quantile of Student's t, because the spread is an estimate, with the first term of Cornish and Fisher for the
        skewness of solo losses: bad luck is larger than good luck.
        """
        from scipy.special import stdtrit  # imported when needed: it takes longer than all of truthfl

        z = float(stdtrit(self.solo.freedom, self.confidence))
        return z + (z**2 - 1.0) * self.solo.skewness / 6.0 if z > 1.0 else z

    @cached_property
    def numbers(self) -> IntArray:
        """All numbers of labels that the curve covers."""
        return np.arange(math.ceil(self.solo.labels[0]), math.floor(self.solo.labels[-1]) + 1)

    @cached_property
    def risk(self) -> FloatArray:
        """Standard deviation of label pay over label cost, for each of `numbers`; infinite where no slope is known."""
        known = self.solo.slope(self.numbers) > SLOPE_ERRORS * self.solo.slope_error(self.numbers)
        return np.where(known, self.solo.risk(self.numbers, self.count), np.inf)

    @cached_property
    def usable(self) -> np.ndarray:
        """Which of `numbers` the server can ask for.

        The slope must be known, and the cap must be within `most_pay`. When pay has the slope of this number, no other
        number may serve a client better on the measured curve.
        """
        affordable = 1.0 + (self.margin_deviations + CAP_DEVIATIONS) * self.risk <= self.most_pay
        level, slope = self.solo.level(self.numbers), self.solo.slope(self.numbers)
        honest = np.zeros(len(self.numbers), dtype=bool)
        for k in np.flatnonzero(affordable):
            gain = (level[k] - level) / slope[k] - (self.numbers / self.numbers[k] - 1.0)
            honest[k] = gain.max() <= TOLERATED_GAIN
        return honest

    def of_clients(self, clients: IntArray) -> LabelTask:
        """The same task for some of the clients."""
        own = {name: getattr(self, name)[clients] for name in ("label_cost", "fixed_cost", "samples")}
        return replace(self, **own)

    def expected_pay(self, labels: FloatArray) -> FloatArray:
        """Expected label pay for these numbers of labels; 0 for 0 labels."""
        risk, asked = self.risk, labels > 0
        relative = risk[np.clip(labels.astype(int) - int(self.numbers[0]), 0, len(risk) - 1)]
        cost = self.label_cost * labels * (1.0 + self.margin_deviations * np.where(asked, relative, 0.0))
        return np.where(asked, cost + self.fixed_cost, 0.0)


def best_labels(task: LabelTask, value_share: float = 1.0) -> FloatArray:
    """n'_i of each client: of the usable numbers, the one with the least

        κ A / (m² n) + u_i n (1 + z risk(n))

    where m is the number of clients. With equal costs, this is the best division of κ A / N + Σ pay. `value_share` is a
    factor on κ. Raises `InfeasibleError` if no number of labels is usable.
    """
    usable = np.flatnonzero(task.usable)
    if not len(usable):
        raise InfeasibleError(_why_none(task))
    numbers = task.numbers[usable].astype(float)
    if task.samples.min() < numbers[0]:
        few = np.flatnonzero(task.samples < numbers[0])
        raise InfeasibleError(
            f"client {few[0]} has {task.samples[few[0]]} samples; the fewest labels whose worth can be measured are "
            f"{int(numbers[0])}: leave out clients with fewer.",
            tuple(few.tolist()),
        )
    price = numbers * (1.0 + task.margin_deviations * task.risk[usable])
    worth = value_share * task.loss_value * max(task.joint_curve, 0.0) / task.count**2 / numbers
    return _cheapest(numbers, worth, price, task.label_cost, task.samples)


def _cheapest(
    numbers: FloatArray, worth: FloatArray, price: FloatArray, label_cost: FloatArray, samples: IntArray
) -> FloatArray:
    """(N,) The number with the least worth_n + label_cost price_n, up to a client's samples; the first of equal ones.

    numbers, worth, price  (K,) rising numbers, and their worth, which does not rise
    label_cost, samples    (N,) samples are at least numbers[0]
    """
    if len(label_cost) <= MANY:
        return _cheapest_of_all(numbers, worth, price, label_cost, samples)
    labels, unsure = cheapest_by_thresholds(numbers, worth, price, label_cost, samples)
    for some in np.array_split(unsure, len(unsure) // MANY + 1):
        labels[some] = _cheapest_of_all(numbers, worth, price, label_cost[some], samples[some])
    return labels


def _cheapest_of_all(
    numbers: FloatArray, worth: FloatArray, price: FloatArray, label_cost: FloatArray, samples: IntArray
) -> FloatArray:
    """`_cheapest` by the costs of all numbers."""
    total = worth + label_cost[:, None] * price
    return np.asarray(numbers[np.where(numbers <= samples[:, None], total, np.inf).argmin(axis=1)])


def taking_part(task: LabelTask) -> np.ndarray:
    """Which clients may be worth their pay: a mask over clients.

    A client's worth is κ (A / (N − n_i) − A / N). The search starts with all clients. It leaves out clients whose
    worth is clearly below their pay, that is, by two standard errors of A. It drops the worst first, a tenth of them at
    a time (at least one), until none is left to drop or one client remains.
    """
    remaining = before = np.arange(len(task.samples))
    most = task.loss_value * max(task.joint_curve + CLEAR_ERRORS * task.joint_error, 0.0)
    while True:
        here = task.of_clients(remaining)
        try:
            labels = best_labels(here)
        except InfeasibleError:  # with so few clients the level is too uncertain
            if remaining is before:
                raise
            remaining = before
            break
        total, pay = float(labels.sum()), here.expected_pay(labels)
        with np.errstate(divide="ignore"):
            worth = most * (1.0 / (total - labels) - 1.0 / total)
        short = np.flatnonzero(worth < pay)
        if not len(short) or len(remaining) == 1:
            break
        worst = short[np.argsort((worth - pay)[short], kind="stable")][: max(1, len(short) // 10)]
        before, remaining = remaining, np.delete(remaining, worst[: len(remaining) - 1])
    mask = np.zeros(len(task.samples), dtype=bool)
    mask[remaining] = True
    return mask


def _why_none(task: LabelTask) -> str:
    """Why no number of labels can be asked for."""
    first, last = int(task.numbers[0]), int(task.numbers[-1])
    if not np.isfinite(task.risk).any():
        return (
            f"between {first} and {last} labels, the test loss of a model that one client trains alone does not fall "
            "by more than its error: further labels are worth nothing that can be measured. Ask for fewer (lower "
            "dataset_size), or give more pilot data (pilot_samples)."
        )
    least = float(np.min(1.0 + (task.margin_deviations + CAP_DEVIATIONS) * task.risk))
    if least > task.most_pay:
        return (
            f"label pay would vary so much that its cap had to be {least:.1f} times the cost of labels; most_pay is "
            f"{task.most_pay:g}. Raise it, or give data on which clients' models are more alike."
        )
    return (
        f"between {first} and {last} labels, the solo loss falls so unevenly that some other number of labels would "
        "always serve a client better than the one asked for: give more pilot data (pilot_samples)."
    )
