"""Plans a job with the audition on the operator's own data: labels, recipe, step size, batches, terms.

First the solo curve and the joint curve show how many labels to ask of each client. Then pilot runs with that many
labels show the effect of batches. They run twice: with a usual batch size, then with the step size tuned again at the
chosen batch size.

These pilots are repeated while they lead to other numbers of labels. They stop when each stated number is within a
factor of `MOST_CHANGE` of the last pilot's. The last pilot's results on loss and batches are stated unchanged, for the
labels that it used.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np

from truthfl.contracts.audition.details import AuditionDetails
from truthfl.contracts.audition.labels import WORTH_LESS, best_labels, taking_part
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.audition.pilot import (
    PILOT_SEED,
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
    usual_recipe,
)
from truthfl.contracts.audition.plan import AuditionInputs, AuditionMeasurement, AuditionPlan, label_task, plan_as
from truthfl.contracts.contract import People, Prices
from truthfl.contracts.formulas import COMMON
from truthfl.contracts.lceme.pilot import WHOLE_PILOT_CLIENTS, PilotMeasurement, measure_pilot
from truthfl.contracts.planning import PilotSide, Plan
from truthfl.contracts.setting import Clients, FloatArray, IntArray, require_rounds
from truthfl.errors import InfeasibleError
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.people.labels import ask_for_labels
from truthfl.learning.pilot.honest_rounds import measure_report_bounds
from truthfl.learning.pilot.runs import PilotDesign, measure_loss_by_rounds, spread_of_loss
from truthfl.learning.pilot.step_size import find_step_size

FIRST_BATCH = 20
FIRST_DESIGN = PilotDesign(seeds=2, honest_seeds=16, search_seeds=3, batch_sizes=(10, 20, 40, 80), lie_batch_size=20)
SECOND_DESIGN = PilotDesign(seeds=3, honest_seeds=32, search_seeds=6)
VISIBLE_ERRORS = 2.0  # the effect of the batch size is used if it is at least this many standard errors above 0
GUESSED_ERROR = 0.02  # of the joint loss, for the batches at which its spread is then measured
MOST_CHANGE = 1.2  # the pilot is repeated until no final number of labels differs by more than this factor
MOST_PILOTS = 5


def plan_on_pilot(mechanism: type[Audition], side_and_design: PilotSide, people: People, prices: Prices) -> Plan:
    """Plan the job; the design is that of the second pilot."""
    side, tune_step, design = side_and_design.server, side_and_design.tune_step, side_and_design.design
    require_rounds(side.pilot.training, "[training] rounds")  # as long as `start` is COMMON
    sizes, name = people.dataset_size, people.name
    numbers = label_numbers(int(sizes.max()), len(side.pilot.data))
    pilot_clients = draw_pilot_clients(side, int(numbers[-1]), PILOT_SEED)
    recipe = usual_recipe(pilot_clients, people, int(numbers[0]))
    solo = measure_solo_curve(pilot_clients, numbers, recipe)
    tuned = _with_step(side, tune_step, design or SECOND_DESIGN)
    joint = measure_joint_curve(tuned, FIRST_BATCH)
    audition_cost = people.sample_cost * recipe.samples

    def inputs(of: IntArray, solo: SoloCurve) -> AuditionInputs:
        """Inputs for these clients while only the curve of the joint part is known."""
        clients = Clients(
            weight=sizes[of] / sizes[of].sum(),
            gradient_variance=1.0,
            sample_cost=people.sample_cost[of],
            labeling_cost=people.labeling_cost[of],
            dataset_size=sizes[of],
            participation=people.participation[of],
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
            budget_bounds=prices.budget_bounds,
            most_pay=prices.most_pay,
        )
        return AuditionInputs(
            clients,
            measured,
            side.pilot.training,
            prices.loss_value,
            budget=prices.budget,
            margin=prices.margin,
            confidence=prices.confidence,
        )

    everybody = np.arange(len(sizes))
    first = inputs(everybody, solo)
    asked = _asked_clients(first)
    labels = plan_as(mechanism, inputs(asked, solo)).labels
    around = numbers_around(int(np.median(labels)), int(numbers[-1]))
    refined = refine_solo_curve(pilot_clients, around, recipe, solo)
    try:
        labels = plan_as(mechanism, inputs(asked, refined)).labels
        solo = refined
    except InfeasibleError:  # usable by a few pilot clients, not by all: keep the whole curve
        labels = plan_as(mechanism, inputs(asked, solo)).labels
    for pilots in range(MOST_PILOTS):
        here = _restricted(tuned, sizes, asked, labels)
        known = inputs(asked, solo)
        result = _planned_at(here, mechanism, known, labels, prices, tune_step, design)
        final = result[0].labels
        if max(float((final / labels).max()), float((labels / final).max())) <= MOST_CHANGE:
            break
        labels = final if pilots == 0 else np.rint(np.sqrt(labels * final))  # halfway, in case they alternate
    else:
        raise InfeasibleError(
            f"after {MOST_PILOTS} pilots the plan still asks for other numbers of labels than its pilot was run with, "
            f"at last {_range(final)} after {_range(here.pilot.partition.sizes)}: try another budget or loss_value, or "
            "give more pilot_samples."
        )
    plan, pilot, final_inputs, error, variance = result
    measured = final_inputs.measured
    if (plan.labels != labels).any():
        here = _restricted(tuned, sizes, asked, plan.labels)
    here = replace(here, pilot=replace(here.pilot, training=pilot.training))
    total, batches = float(plan.labels.sum()), plan.contract.batch_size
    with np.errstate(divide="ignore"):
        rise = measured.joint_curve * (1.0 / (total - plan.labels) - 1.0 / total)
    return Plan(
        training=pilot.training,
        search=pilot.search,
        clients=Clients(
            weight=plan.labels / total,
            gradient_variance=np.maximum(pilot.gradient_variance, 1e-300),
            sample_cost=people.sample_cost[asked],
            labeling_cost=people.labeling_cost[asked] / sizes[asked] * plan.labels,
            dataset_size=plan.labels.astype(np.int64),
            participation=people.participation[asked],
            name=None if name is None else [name[k] for k in asked],
        ),
        calibration=pilot.calibration,
        contract=plan.contract,
        loss_error=error,
        loss_variance=variance,
        side=here,
        report_bounds=measure_report_bounds(here, batches),
        loss_by_rounds=measure_loss_by_rounds(pilot.trial, side.test, pilot.trial_batches(batches)),
        details=AuditionDetails(
            labels=plan.labels.astype(np.int64),
            solo=solo,
            joint=joint,
            inputs=final_inputs,
            plan=plan,
            worth=prices.loss_value * rise,
        ),
        asked=asked,
        left_out=_left_out(people, asked, final_inputs),
        recipe=recipe,
        solo_cost=measured.audition_cost,
        start=COMMON,
    )


def _left_out(people: People, asked: IntArray, inputs: AuditionInputs) -> dict[str, str]:
    """Why others are not asked, by name."""
    others = np.setdiff1d(np.arange(len(people.dataset_size)), asked)
    if not len(others):
        return {}
    task = label_task(inputs)
    fewest = int(task.numbers[task.usable].min())
    few = f"samples are too few; what fewer than {fewest} labels are worth cannot be measured"
    return {
        str(k) if people.name is None else people.name[k]: f"{people.dataset_size[k]} {few}"
        if people.dataset_size[k] < fewest
        else WORTH_LESS
        for k in others.tolist()
    }


def _asked_clients(inputs: AuditionInputs) -> IntArray:
    """Positions of the clients worth asking; those with too few samples to label are left out."""
    task = label_task(inputs)
    stay = np.arange(len(inputs.clients))
    while True:  # with fewer clients, measuring their worth may need more labels
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
    inputs: AuditionInputs,
    labels: FloatArray,
    prices: Prices,
    tune_step: bool,
    design: PilotDesign | None,
) -> tuple[AuditionPlan, PilotMeasurement, AuditionInputs, float, float]:
    """The plan from two pilots with these labels: at a usual batch size, then at the one chosen by the first pilot."""
    first = measure_pilot(side, FIRST_DESIGN, tune_step=tune_step)
    planned = _planned_from(side, mechanism, inputs, labels, prices, first, last=False)
    typical = int(np.median(planned[0].contract.batch_size))
    smallest = int(labels.min())
    sizes = sorted({max(1, typical // 2), typical, *(min(factor * typical, smallest) for factor in (2, 4))})
    while len(sizes) < 3:
        sizes.append(sizes[-1] + 1)
    second = replace(design or SECOND_DESIGN, batch_sizes=tuple(sizes), lie_batch_size=max(typical, 2))
    pilot = measure_pilot(side, second, tune_step=tune_step)
    return _planned_from(side, mechanism, inputs, labels, prices, pilot, last=True)


def _planned_from(
    side: ServerSide,
    mechanism: type[Audition],
    inputs: AuditionInputs,
    labels: FloatArray,
    prices: Prices,
    pilot: PilotMeasurement,
    *,
    last: bool,
) -> tuple[AuditionPlan, PilotMeasurement, AuditionInputs, float, float]:
    """The plan from this pilot; the first pilot's plan is used for batches only."""
    known = inputs.measured
    model, factor = pilot.calibration.model, pilot.calibration.factor
    visible = factor[1] > VISIBLE_ERRORS * pilot.calibration.standard_error[1]
    sampling = model.sampling if visible else np.zeros(len(labels))
    trained = replace(side, pilot=replace(side.pilot, training=pilot.training))
    measured = replace(known, sampling=sampling, absence=np.full(len(labels), np.inf), loss_error=GUESSED_ERROR)
    guessed = plan_as(mechanism, replace(inputs, training=pilot.training, measured=measured))
    if not last:
        return guessed, pilot, inputs, GUESSED_ERROR, 0.0
    guess = guessed.contract.batch_size
    level, error, variance = _level_and_error(trained, pilot, labels, guess, prices.test_samples)
    shifted = replace(model, constant=max(model.constant + level - model.truthful_loss(guess), 0.0))
    pilot = replace(pilot, calibration=replace(pilot.calibration, model=shifted))
    measured = replace(
        measured,
        constant=level - known.joint_curve / float(labels.sum()) - float((sampling / guess).sum()),
        loss_error=error,
        absence=measure_absence(trained, guess),
        presence_curve=max(measure_presence_curve(trained, guess), known.joint_curve),
    )
    final = replace(inputs, training=pilot.training, measured=measured)
    return plan_as(mechanism, final), pilot, final, error, variance


def _level_and_error(
    side: ServerSide, pilot: PilotMeasurement, labels: FloatArray, batches: FloatArray, test_samples: int
) -> tuple[float, float, float]:
    """The expected joint loss, the standard deviation of a job's loss around it, and the variance between samples.

    A small group of clients is drawn anew many times. In a large group the loss hardly depends on which clients it
    has, so the pilot's own clients are resampled.
    """
    if len(labels) > WHOLE_PILOT_CLIENTS:
        spread, variance = spread_of_loss(pilot.trial, side.test, pilot.trial_batches(batches))
        own_error = pilot.calibration.truthful_loss_error(batches)
        error = sqrt(spread**2 + own_error**2 + variance / test_samples)
        return pilot.calibration.model.truthful_loss(batches), error, variance
    found = measure_joint_level(side, labels.astype(np.int64), batches)
    error = sqrt(found.spread**2 * (1.0 + 1.0 / found.draws) + found.sample_variance / test_samples)
    return found.mean, error, found.sample_variance
