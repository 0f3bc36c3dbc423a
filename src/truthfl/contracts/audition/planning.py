"""Plans a job with the audition on the operator's own data: labels, recipe, step size, batches, terms.

First the solo curve and the joint curve tell how many labels to ask of whom; then pilot runs with that many labels tell
what batches do, twice: with a usual batch size, and with the step size tuned again at the one that was chosen.

These pilots are run again while they lead to other numbers of labels, until each stated number is within a factor of
`MOST_CHANGE` of the last pilot's. What the last pilot told of loss and batches is stated as it is, for the labels that
it ran with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np

from truthfl.contracts.audition.labels import best_labels, taking_part
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.audition.pilot import (
    JointCurve,
    draw_pilot_clients,
    label_numbers,
    measure_absence,
    measure_joint_curve,
    measure_joint_level,
    measure_presence_curve,
    measure_solo_curve,
    numbers_around,
    refine_solo_curve,
    some_clients,
    tune_recipe,
)
from truthfl.contracts.audition.plan import AuditionMeasurement, AuditionPlan, label_task, plan_as, require_measured
from truthfl.contracts.contract import PlanInputs
from truthfl.contracts.lceme.loss_model import LossModel
from truthfl.contracts.lceme.pilot import WHOLE_PILOT_CLIENTS, PilotMeasurement, measure_pilot
from truthfl.contracts.setting import Clients, FloatArray, IntArray, Training
from truthfl.errors import InfeasibleError
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.people.labels import ask_for_labels
from truthfl.learning.pilot.runs import PilotDesign, measure_loss_by_rounds, spread_of_loss
from truthfl.learning.pilot.step_size import find_step_size
from truthfl.learning.solo import Recipe

FIRST_BATCH = 20
FIRST_DESIGN = PilotDesign(seeds=2, honest_seeds=16, search_seeds=3, batch_sizes=(10, 20, 40, 80), lie_batch_size=20)
SECOND_DESIGN = PilotDesign(seeds=3, honest_seeds=32, search_seeds=6)
VISIBLE_ERRORS = 2.0  # the effect of the batch size is used if it is so many standard errors above 0
GUESSED_ERROR = 0.02  # of the joint loss, for the batches at which its spread is then measured
PILOT_SEED = 11
RECIPE_LABELS = 0.6  # the recipe is tuned at this share of the most samples
MOST_CHANGE = 1.2  # the pilot is run again until no final number of labels differs by more than this factor
MOST_PILOTS = 5


def plan_on_pilot(
    side: ServerSide,
    settings: AuditionSettings,
    *,
    mechanism: type[Audition] = Audition,
    name: tuple[str, ...] | None,
    sample_cost: FloatArray,
    labeling_cost: FloatArray,
    tune_step: bool,
    design: PilotDesign | None = None,
) -> AuditionResult:
    """Plan the job. `labeling_cost` is that of all samples of a client; `design` is of the second pilot."""
    sizes = side.pilot.partition.sizes
    numbers = label_numbers(int(sizes.max()), len(side.pilot.data))
    pilot_clients = draw_pilot_clients(side, int(numbers[-1]), PILOT_SEED)
    label_cost = float(np.median(labeling_cost / sizes))
    tried = int(max(RECIPE_LABELS * sizes.max(), numbers[0]))
    recipe = tune_recipe(pilot_clients, tried, label_cost, float(np.median(sample_cost)))
    solo = measure_solo_curve(pilot_clients, numbers, recipe)
    tuned = _with_step(side, tune_step, design or SECOND_DESIGN)
    joint = measure_joint_curve(tuned, FIRST_BATCH)
    audition_cost = sample_cost * recipe.samples

    def inputs(of: IntArray, solo: SoloCurve, training: Training, pilot: PilotMeasurement | None) -> PlanInputs:
        """Inputs for these clients; without a pilot measurement the joint part is not known yet."""
        clients = Clients(
            weight=sizes[of] / sizes[of].sum(),
            gradient_variance=1.0,
            sample_cost=sample_cost[of],
            labeling_cost=labeling_cost[of],
            dataset_size=sizes[of],
            participation=side.pilot.participation[of],
            name=None if name is None else [name[k] for k in of],
        )
        nothing = np.zeros(len(of))
        measured = AuditionMeasurement(
            solo=solo,
            joint_curve=max(joint.curve, 0.0),
            joint_curve_error=joint.error,
            constant=0.0,
            sampling=nothing,
            absence=nothing,
            loss_error=0.0,
            audition_cost=audition_cost[of],
            budget_bounds=settings.budget_bounds,
            most_pay=settings.most_pay,
        )
        model = LossModel(constant=0.0, sampling=nothing, labeling=nothing, reporting=nothing)
        return PlanInputs(
            clients,
            model if pilot is None else pilot.calibration.model,
            training,
            settings.loss_value,
            budget=settings.budget,
            margin=settings.margin,
            confidence=settings.confidence,
            audition=measured,
        )

    everybody = np.arange(len(sizes))
    first = inputs(everybody, solo, side.pilot.training, None)
    asked = _asked_clients(first)
    labels = plan_as(mechanism, inputs(asked, solo, side.pilot.training, None)).labels
    around = numbers_around(int(np.median(labels)), int(numbers[-1]))
    refined = refine_solo_curve(pilot_clients, around, recipe, solo)
    try:
        labels = plan_as(mechanism, inputs(asked, refined, side.pilot.training, None)).labels
        solo = refined
    except InfeasibleError:  # a number that was usable by a few pilot clients is not by all: stay with the whole curve
        labels = plan_as(mechanism, inputs(asked, solo, side.pilot.training, None)).labels
    for pilots in range(MOST_PILOTS):
        here = _restricted(tuned, sizes, asked, labels)
        known = inputs(asked, solo, side.pilot.training, None)
        result = _planned_at(here, mechanism, known, labels, settings, tune_step, design)
        final = result[0].labels
        if max(float((final / labels).max()), float((labels / final).max())) <= MOST_CHANGE:
            break
        labels = final if pilots == 0 else np.rint(np.sqrt(labels * final))  # between both, should they alternate
    else:
        raise InfeasibleError(
            f"after {MOST_PILOTS} pilots the plan still asks for other numbers of labels than its pilot was run with, "
            f"at last {_range(final)} after {_range(here.pilot.partition.sizes)}: try another budget or loss_value, or "
            "give more pilot_samples."
        )
    plan, pilot, final_inputs, error, variance = result
    measured = require_measured(final_inputs)
    if (plan.labels != labels).any():
        here = _restricted(tuned, sizes, asked, plan.labels)
    here = replace(here, pilot=replace(here.pilot, training=pilot.training))
    total = float(plan.labels.sum())
    with np.errstate(divide="ignore"):
        rise = measured.joint_curve * (1.0 / (total - plan.labels) - 1.0 / total)
    return AuditionResult(
        AuditionDetails(
            asked=asked,
            labels=plan.labels.astype(np.int64),
            recipe=recipe,
            solo=solo,
            joint=joint,
            inputs=final_inputs,
            plan=plan,
            worth=settings.loss_value * rise,
            loss_by_rounds=measure_loss_by_rounds(
                pilot.trial, side.test, pilot.trial_batches(plan.contract.batch_size)
            ),
        ),
        pilot,
        here,
        Clients(
            weight=plan.labels / total,
            gradient_variance=np.maximum(pilot.gradient_variance, 1e-300),
            sample_cost=sample_cost[asked],
            labeling_cost=labeling_cost[asked] / sizes[asked] * plan.labels,
            dataset_size=plan.labels.astype(np.int64),
            participation=side.pilot.participation[asked],
            name=None if name is None else [name[k] for k in asked],
        ),
        error,
        variance,
    )


def _asked_clients(inputs: PlanInputs) -> IntArray:
    """Positions of the clients worth asking; those with too few samples to label are left out."""
    task = label_task(inputs)
    stay = np.arange(len(inputs.clients))
    while True:  # with fewer clients, more labels may be needed to tell what they are worth
        try:
            best_labels(task.of_clients(stay))
            return np.asarray(stay[taking_part(task.of_clients(stay))])
        except InfeasibleError as error:
            if not error.clients or len(error.clients) == len(stay):
                raise InfeasibleError(str(error)) from None
            stay = np.delete(stay, error.clients)


def _with_step(side: ServerSide, tune_step: bool, design: PilotDesign) -> ServerSide:
    """The side with a step size tuned at a usual batch size, for the joint curve."""
    if not tune_step:
        return side
    low, high = design.step_range
    search = find_step_size(
        some_clients(side, 0), side.test, FIRST_BATCH, low=low, high=high, seeds=FIRST_DESIGN.search_seeds or 3
    )
    training = replace(side.pilot.training, step_size=search.parabola_minimum)
    return replace(side, pilot=replace(side.pilot, training=training))


def _range(labels: IntArray | FloatArray) -> str:
    """The numbers of labels of all clients in words."""
    low, high = int(labels.min()), int(labels.max())
    return f"{low}" if low == high else f"{low} to {high}"


def _restricted(side: ServerSide, sizes: IntArray, asked: IntArray, labels: FloatArray) -> ServerSide:
    """The pilot federation of the clients asked, with the samples that they label."""
    of_all = np.zeros(len(sizes), dtype=np.int64)
    of_all[asked] = labels.astype(np.int64)
    return replace(side, pilot=ask_for_labels(side.pilot, of_all, PILOT_SEED))


def _planned_at(
    side: ServerSide,
    mechanism: type[Audition],
    inputs: PlanInputs,
    labels: FloatArray,
    settings: AuditionSettings,
    tune_step: bool,
    design: PilotDesign | None,
) -> tuple[AuditionPlan, PilotMeasurement, PlanInputs, float, float]:
    """The plan from two pilots with these labels: at a usual batch size, and at the one that the first pilot chose."""
    first = measure_pilot(side, FIRST_DESIGN, tune_step=tune_step)
    planned = _planned_from(side, mechanism, inputs, labels, settings, first, last=False)
    typical = int(np.median(planned[0].contract.batch_size))
    smallest = int(labels.min())
    sizes = sorted({max(1, typical // 2), typical, *(min(factor * typical, smallest) for factor in (2, 4))})
    while len(sizes) < 3:
        sizes.append(sizes[-1] + 1)
    second = replace(design or SECOND_DESIGN, batch_sizes=tuple(sizes), lie_batch_size=max(typical, 2))
    pilot = measure_pilot(side, second, tune_step=tune_step)
    return _planned_from(side, mechanism, inputs, labels, settings, pilot, last=True)


def _planned_from(
    side: ServerSide,
    mechanism: type[Audition],
    inputs: PlanInputs,
    labels: FloatArray,
    settings: AuditionSettings,
    pilot: PilotMeasurement,
    *,
    last: bool,
) -> tuple[AuditionPlan, PilotMeasurement, PlanInputs, float, float]:
    """The plan from this pilot; from the first one it is for the batches only."""
    known = inputs.audition
    assert known is not None
    model, factor = pilot.calibration.model, pilot.calibration.factor
    visible = factor[1] > VISIBLE_ERRORS * pilot.calibration.standard_error[1]
    sampling = model.sampling if visible else np.zeros(len(labels))
    trained = replace(side, pilot=replace(side.pilot, training=pilot.training))
    measured = replace(known, sampling=sampling, absence=np.full(len(labels), np.inf), loss_error=GUESSED_ERROR)
    guessed = plan_as(mechanism, replace(inputs, training=pilot.training, audition=measured))
    if not last:
        return guessed, pilot, inputs, GUESSED_ERROR, 0.0
    guess = guessed.contract.batch_size
    level, error, variance = _level_and_error(trained, pilot, labels, guess, settings.test_samples)
    shifted = replace(model, constant=max(model.constant + level - model.truthful_loss(guess), 0.0))
    pilot = replace(pilot, calibration=replace(pilot.calibration, model=shifted))
    measured = replace(
        measured,
        constant=level - known.joint_curve / float(labels.sum()) - float((sampling / guess).sum()),
        loss_error=error,
        absence=measure_absence(trained, guess),
        presence_curve=max(measure_presence_curve(trained, guess), known.joint_curve),
    )
    final = replace(inputs, training=pilot.training, audition=measured)
    return plan_as(mechanism, final), pilot, final, error, variance


def _level_and_error(
    side: ServerSide, pilot: PilotMeasurement, labels: FloatArray, batches: FloatArray, test_samples: int
) -> tuple[float, float, float]:
    """The expected joint loss, the standard deviation of a job's loss around it, and the variance between samples.

    Few clients are drawn anew many times. Of many the loss hardly depends on who they are: there, the pilot's own
    clients are resampled.
    """
    if len(labels) > WHOLE_PILOT_CLIENTS:
        spread, variance = spread_of_loss(pilot.trial, side.test, pilot.trial_batches(batches))
        own_error = pilot.calibration.truthful_loss_error(batches)
        error = sqrt(spread**2 + own_error**2 + variance / test_samples)
        return pilot.calibration.model.truthful_loss(batches), error, variance
    found = measure_joint_level(side, labels.astype(np.int64), batches)
    error = sqrt(found.spread**2 * (1.0 + 1.0 / found.draws) + found.sample_variance / test_samples)
    return found.mean, error, found.sample_variance


@dataclass(frozen=True, eq=False)
class AuditionDetails:
    """How an audition plan came about.

    asked         positions, in the job, of the clients who are asked; the others are left out
    labels        numbers of labels asked of them
    recipe        of solo training
    solo          the solo curve
    joint         the joint curve
    inputs        from which the contract was computed
    plan          the contract's plan
    worth         (clients,) of those asked: what her labels are worth to the server, κ (A / (N − n_i) − A / N)
    loss_by_rounds  rise of the joint loss if training ends after 0, 1/k, 2/k, … of the rounds
    """

    asked: IntArray
    labels: IntArray
    recipe: Recipe
    solo: SoloCurve
    joint: JointCurve
    inputs: PlanInputs
    plan: AuditionPlan
    worth: FloatArray
    loss_by_rounds: tuple[float, ...]

    @property
    def measurement(self) -> AuditionMeasurement:
        """What the pilot measured for the contract."""
        return require_measured(self.inputs)

    def at_labels(self, factor: float) -> tuple[float, float, float]:
        """Joint loss, cost of labels and label pay of all, if this factor of the labels were asked of everybody."""
        task = label_task(self.inputs)
        labels = np.clip(np.rint(self.labels * factor), task.numbers[0], task.numbers[-1])
        noise = float((self.measurement.sampling / self.plan.contract.batch_size).sum())
        loss = self.measurement.constant + self.measurement.joint_curve / float(labels.sum()) + noise
        return loss, float((task.label_cost * labels).sum()), float(task.expected_pay(labels).sum())


@dataclass(frozen=True, eq=False)
class AuditionResult:
    """The details, the pilot's measurement at the labels asked for, the restricted side and clients, and the spread."""

    details: AuditionDetails
    pilot: PilotMeasurement
    side: ServerSide
    clients: Clients
    loss_error: float
    loss_variance: float


@dataclass(frozen=True)
class AuditionSettings:
    """The operator's settings: as in `PlanInputs`, and the number of test samples."""

    loss_value: float
    budget: float | None
    budget_bounds: str
    margin: float
    confidence: float
    most_pay: float
    test_samples: int
