"""LCEME and the audition for n equal clients, from what the pilot draws tell.

The loss model is fitted at ten clients and carried to n by its own law: v_i ∝ p_i²/q_i, b_i ∝ p_i; the expected loss
and its spread are measured at n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from truthfl.errors import InputError
from truthfl.learning.recipe import Recipe
from truthfl.mechanism.audition import Audition
from truthfl.mechanism.audition_labels import CAP_DEVIATIONS, SLOPE_ERRORS, LabelTask
from truthfl.mechanism.audition_plan import AuditionMeasurement, audition_contract, label_task
from truthfl.mechanism.contract import Contract, lceme
from truthfl.mechanism.loss_model import LossModel
from truthfl.mechanism.mechanism import PlanInputs
from truthfl.mechanism.setting import Clients, Training
from truthfl.mechanism.solo_curve import SoloCurve
from truthfl.mechanism.spread import confidence_margin
from truthfl.studies.size.size_design import FITTED_CLIENTS, Money, SizeDesign
from truthfl.studies.work import Result


@dataclass(frozen=True)
class FittedLoss:
    """What batches, labels and random labels do to the joint loss, in all.

    batch_noise     V: the loss has a part V / (samples of all clients in a round)
    random_labels   β: it rises by β times the share of labels that are drawn at random
    label_curve     A: it has a part A / (labels of all clients); label_error is the standard error of A
    """

    batch_noise: float
    random_labels: float
    label_curve: float
    label_error: float

    def worth(self, size: int, design: SizeDesign) -> float:
        """κ (A/N + V/B) / (n − 1): what the work of one of n equal clients is worth, in money.

        Without her there are N (1 − 1/n) labels, and B (1 − 1/n) samples in a round.
        """
        lost = self.label_curve / design.total_labels + self.batch_noise / design.batch_of_all
        return design.money.loss_value * lost / (size - 1)


@dataclass(frozen=True)
class PilotLevel:
    """The joint loss of honest clients on pilot draws: mean, spread around it at settlement."""

    mean: float
    spread: float


@dataclass(frozen=True, eq=False)
class SoloPlan:
    """What the pilot says of solo models with so many labels.

    reason  why label pay cannot go by them; empty if it can
    """

    recipe: Recipe
    curve: SoloCurve
    reason: str


def fitted_loss(design: SizeDesign, results: Sequence[Result]) -> FittedLoss:
    """Least squares over the pilot draws; `InputError` if batches or labels do not show in the loss."""
    by_batch, by_labels = (np.stack([each[name] for each in results]) for name in ("by_batch", "by_labels"))
    batch_noise = _slopes(1.0 / (FITTED_CLIENTS * results[0]["batch"]), by_batch)
    label_curve = _slopes(1.0 / results[0]["labels"], by_labels)
    rise = np.array([float(each["random"]) for each in results]) - by_labels[:, -1]
    fitted = FittedLoss(
        float(batch_noise.mean()),
        FITTED_CLIENTS * float(rise.mean()),
        float(label_curve.mean()),
        float(label_curve.std(ddof=1) / sqrt(len(results))),
    )
    if min(fitted.batch_noise, fitted.random_labels, fitted.label_curve) <= 0:
        raise InputError(
            f"on {design.data.source} the joint loss of {FITTED_CLIENTS} clients does not show batches or labels; "
            "there is nothing to pay by it. Another seed may show them."
        )
    return fitted


def joint_level(design: SizeDesign, losses: Sequence[float], loss_variance: float, pool: int) -> PilotLevel:
    """The level and spread from the losses of pilot draws.

    Draws of N labels from a pool of P overlap, which makes the variance between them smaller by the factor 1 − N/P.
    """
    count = len(losses)
    between = float(np.var(losses, ddof=1)) / (1.0 - design.total_labels / pool)
    variance = between * (1.0 + 1.0 / count) + loss_variance / design.money.test_draws
    return PilotLevel(float(np.mean(losses)), sqrt(variance))


def equal_clients(design: SizeDesign, size: int) -> Clients:
    """The clients of a federation of this size."""
    money, labels = design.money, design.labels_each(size)
    return Clients(
        weight=np.full(size, 1.0 / size),
        gradient_variance=1.0,
        sample_cost=money.sample_cost,
        labeling_cost=money.label_cost * labels,
        dataset_size=labels,
        participation=design.participation(size),
    )


def lceme_for(
    design: SizeDesign, size: int, clients: Clients, training: Training, fitted: FittedLoss, level: PilotLevel
) -> Contract:
    """LCEME for the assigned batches.

    If those are below the floor at which labels pay on the loss model, the slope is that of the floor.
    """
    batches = np.full(size, float(design.batch_each(size)))
    total, labels_cost = design.batch_of_all, design.money.label_cost * design.total_labels
    price = design.rounds * design.money.sample_cost
    slope = max(price * total**2 / fitted.batch_noise, labels_cost / fitted.random_labels)
    noise = price * total**2 / slope  # V, or less where the slope is that of the floor
    sampling = noise / (size**2 * design.participation(size))
    model = LossModel(
        constant=max(level.mean - noise / total, 0.0),
        sampling=np.full(size, sampling),
        labeling=np.full(size, fitted.random_labels / size),
        reporting=np.zeros(size),
    )
    bare = lceme(clients, model, training, batches)
    margin = confidence_margin(bare, level.spread, confidence=design.money.confidence)
    return lceme(clients, model, training, batches, margin=margin)


def solo_plan(design: SizeDesign, size: int, stored: Result) -> SoloPlan:
    """What the stored solo curve allows in a federation of this size."""
    steps, batch, step_size, penalty, shifts = stored["recipe"].tolist()
    recipe = Recipe(int(steps), int(batch), step_size, penalty, int(shifts))
    labels, curve, clients = (
        design.labels_each(size),
        SoloCurve(stored["numbers"], stored["loss"]),
        equal_clients(design, size),
    )
    task = label_task(_inputs(design.money, clients, Training(design.rounds, 1, 1.0), recipe, curve, None))
    return SoloPlan(recipe, curve, _why_not(task, labels))


def audition_for(
    design: SizeDesign,
    size: int,
    clients: Clients,
    training: Training,
    solo: SoloPlan,
    fitted: FittedLoss,
    level: PilotLevel,
) -> Audition:
    """The audition with these labels. Computing is paid a fixed amount: it is below the 1% that a plan tolerates."""
    inputs = _inputs(design.money, clients, training, solo.recipe, solo.curve, fitted, level)
    batches = np.full(size, float(design.batch_each(size)))
    return audition_contract(inputs, clients.dataset_size.astype(float), batches)


def _inputs(
    money: Money,
    clients: Clients,
    training: Training,
    recipe: Recipe,
    curve: SoloCurve,
    fitted: FittedLoss | None,
    level: PilotLevel | None = None,
) -> PlanInputs:
    nothing = np.zeros(len(clients))
    measured = AuditionMeasurement(
        solo=curve,
        joint_curve=0.0 if fitted is None else fitted.label_curve,
        joint_curve_error=0.0 if fitted is None else fitted.label_error,
        constant=0.0,
        sampling=nothing,
        absence=nothing,
        loss_error=0.0 if level is None else level.spread,
        audition_cost=np.full(len(clients), money.sample_cost * recipe.samples),
        most_pay=money.most_pay,
    )
    model = LossModel(constant=0.0, sampling=nothing, labeling=nothing, reporting=nothing)
    return PlanInputs(clients, model, training, money.loss_value, confidence=money.confidence, audition=measured)


def _why_not(task: LabelTask, labels: int) -> str:
    """Why so many labels cannot be asked for; empty if they can. The rules are those of `LabelTask.usable`."""
    at = int(np.flatnonzero(task.numbers == labels)[0])
    if task.usable[at]:
        return ""
    slope, error = (float(part([labels])[0]) for part in (task.solo.slope, task.solo.slope_error))
    if slope <= SLOPE_ERRORS * error:
        return (
            f"the slope of the solo loss, {slope:.3f} ± {error:.3f} for a factor e of labels, is not known well enough"
        )
    cap = 1.0 + (task.margin_deviations + CAP_DEVIATIONS) * float(task.risk[at])
    if cap > task.most_pay:
        return (
            f"the cap of label pay had to be {cap:.1f} times the cost of labels; at most {task.most_pay:g} is allowed"
        )
    return "another number of labels would serve a client better on the measured curve"


def _slopes(x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The slope of each row of `values` in x."""
    centered = x - x.mean()
    return np.asarray(values @ centered / (centered @ centered))
