"""Plans a job with the audition on the operator's own data: recipe, joint training, labels, terms.

The solo curve says what labels do for a model that one client trains alone, drawn jobs of pilot clients what they do
for the joint model. From both follow the numbers of labels. Computing is paid a fixed amount where it is cheap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from truthfl.contracts.audition.details import AuditionDetails
from truthfl.contracts.audition.joint import JointMeasurement
from truthfl.contracts.audition.labels import best_labels, taking_part
from truthfl.contracts.audition.level import SoloCurve
from truthfl.contracts.audition.pay import Audition
from truthfl.contracts.audition.pilot import label_numbers, measure_solo_curve, tried_labels, usual_recipe
from truthfl.contracts.audition.plan import AuditionInputs, AuditionMeasurement, label_task, plan_as
from truthfl.contracts.audition.rounds import (
    FIRST_SEED,
    LEVEL_DRAWS,
    TUNED_DRAWS,
    DrawnJob,
    JointCurve,
    JointLevel,
    JointTraining,
    RoundPrices,
    Tuned,
    draw_jobs,
    measure_absence,
    measure_joint_curve,
    measure_joint_level,
    measure_loss_by_rounds,
    measure_presence_curve,
    measure_sampling,
    tune_rounds,
)
from truthfl.contracts.contract import People, Prices
from truthfl.contracts.formulas import SOLO_MEAN
from truthfl.contracts.planning import WORTH_LESS, PilotSide, Plan
from truthfl.contracts.setting import Clients, FloatArray, IntArray
from truthfl.errors import InfeasibleError
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.people.labels import ask_for_labels
from truthfl.learning.pilot.honest_rounds import HonestJob, measure_report_bounds
from truthfl.learning.pilot.pilot_clients import PILOT_SEED, draw_pilot_clients
from truthfl.learning.solo import Recipe, longest_model

MOST_FIXED_SHARE = 0.02  # of a client's pay: up to this, all computing is paid a fixed amount
LEVEL_SEED = 900


def plan_on_pilot(contract: type[Audition], pilot: PilotSide, people: People, prices: Prices) -> Plan:
    """Plan the job."""
    side, sizes = pilot.server, people.dataset_size
    numbers = label_numbers(side, int(sizes.max()))
    pilot_clients = draw_pilot_clients(side, int(numbers[-1]), PILOT_SEED)
    recipe = usual_recipe(pilot_clients, people, int(numbers[0]))
    solo = measure_solo_curve(pilot_clients, numbers, recipe)
    job = _Job(side, people, prices, recipe, solo, pilot.tune_step)
    guess = np.minimum(tried_labels(sizes, int(numbers[0])), numbers[-1])
    everybody, first = np.arange(len(sizes)), np.minimum(sizes, guess)
    tuned = job.tuned(first, everybody, draw_jobs(side, first, recipe, TUNED_DRAWS, FIRST_SEED))
    joint = measure_joint_curve(side, np.minimum(sizes, numbers[-1]), recipe, tuned.best)
    asked = _asked_clients(job.inputs(everybody, joint, tuned.best))
    planned = plan_as(contract, job.inputs(asked, joint, tuned.best))
    labels = planned.labels.astype(np.int64)
    jobs = draw_jobs(_restricted(side, sizes, asked, labels), labels, recipe, LEVEL_DRAWS, LEVEL_SEED)
    tuned = job.tuned(labels, asked, jobs[:TUNED_DRAWS], tuned.best)
    how, level = tuned.best, measure_joint_level(jobs, side.test, tuned.best)
    inputs = job.inputs(asked, joint, how)
    loss_by_rounds: tuple[float, ...] = ()
    if not job.prices_of(labels, asked).is_small(how):
        measured = _joint_measurement(jobs, side, how, level, joint, labels, prices.test_samples)
        inputs = replace(inputs, measured=replace(inputs.measured, joint=measured))
        loss_by_rounds = measure_loss_by_rounds(jobs, side.test, how)
    planned = plan_as(contract, inputs)
    labels, total = planned.labels.astype(np.int64), float(planned.labels.sum())
    here = _restricted(side, sizes, asked, labels)
    here = replace(here, pilot=replace(here.pilot, training=how.training))
    return Plan(
        training=how.training,
        start=how.start,
        clients=Clients(
            weight=planned.labels / total,
            gradient_variance=1.0,
            sample_cost=people.sample_cost[asked],
            labeling_cost=people.labeling_cost[asked] / sizes[asked] * planned.labels,
            dataset_size=labels,
            participation=people.participation[asked],
            name=None if people.name is None else [people.name[k] for k in asked],
        ),
        contract=planned,
        expected_loss=level.loss,
        loss_error=level.error(prices.test_samples),
        loss_variance=level.sample_variance,
        side=here,
        report_bounds=measure_report_bounds(honest_jobs(jobs, how)),
        solo_bound=longest_model(np.concatenate([one.models for one in jobs])),
        loss_by_rounds=loss_by_rounds,
        details=AuditionDetails(
            solo=solo, joint=joint, inputs=inputs, contract=planned, level=level, how=how, tuned=tuned
        ),
        asked=asked,
        left_out=_left_out(people, asked, inputs),
        recipe=recipe,
        solo_cost=inputs.measured.audition_cost,
    )


@dataclass(frozen=True, eq=False)
class _Job:
    """What is known before the joint training is tuned."""

    side: ServerSide
    people: People
    prices: Prices
    recipe: Recipe
    solo: SoloCurve
    tune_step: bool

    def prices_of(self, labels: IntArray, asked: IntArray) -> RoundPrices:
        """What rounds cost and are worth if these clients are asked for these labels."""
        people = self.people
        label_cost = (people.labeling_cost / people.dataset_size)[asked] * labels
        sample_cost = (people.sample_cost * people.participation)[asked]
        return RoundPrices(
            self.prices.loss_value,
            float(sample_cost.sum()),
            float(label_cost.sum()),
            float((MOST_FIXED_SHARE * label_cost / sample_cost).min()),
        )

    def tuned(
        self, labels: IntArray, asked: IntArray, jobs: list[DrawnJob], near: JointTraining | None = None
    ) -> Tuned:
        """The joint training that serves the server best with these labels."""
        pilot = self.side.pilot
        return tune_rounds(
            jobs,
            self.side.test,
            pilot.training,
            self.prices_of(labels, asked),
            tune_step=self.tune_step,
            aggregation=pilot.rule.aggregation,
            near=near,
        )

    def inputs(self, of: IntArray, joint: JointCurve, how: JointTraining) -> AuditionInputs:
        """The inputs of the contract with these clients, if computing is paid a fixed amount."""
        people, prices, sizes = self.people, self.prices, self.people.dataset_size
        clients = Clients(
            weight=sizes[of] / sizes[of].sum(),
            gradient_variance=1.0,
            sample_cost=people.sample_cost[of],
            labeling_cost=people.labeling_cost[of],
            dataset_size=sizes[of],
            participation=people.participation[of],
            name=None if people.name is None else [people.name[k] for k in of],
        )
        measured = AuditionMeasurement(
            solo=self.solo,
            joint_curve=max(joint.curve, 0.0),
            joint_curve_error=joint.error,
            audition_cost=people.sample_cost[of] * self.recipe.samples,
            batch=float(how.batch),
            budget_bounds=prices.budget_bounds,
            most_pay=prices.most_pay,
        )
        return AuditionInputs(
            clients,
            measured,
            how.training,
            prices.loss_value,
            budget=prices.budget,
            margin=prices.margin,
            confidence=prices.confidence,
        )


def _joint_measurement(
    jobs: list[DrawnJob],
    side: ServerSide,
    how: JointTraining,
    level: JointLevel,
    joint: JointCurve,
    labels: IntArray,
    test_samples: int,
) -> JointMeasurement:
    """What is needed to pay computing by the joint loss."""
    share = np.square(labels / labels.sum())
    drawn = jobs[0].federated
    sampling = measure_sampling(jobs, side.test, how)
    batches = how.batches(labels)
    v = sampling * share / share.sum()
    curve = max(joint.curve, 0.0)
    mean_weight = float(drawn.weight.mean())
    absence = measure_absence(jobs, side.test, how) * (labels / labels.sum()) / mean_weight
    return JointMeasurement(
        sampling=v,
        absence=np.asarray(absence, dtype=float),
        constant=level.loss - curve / float(labels.sum()) - float((v / batches).sum()),
        presence_curve=max(measure_presence_curve(jobs, side.test, how), curve),
        loss_error=level.error(test_samples),
    )


def honest_jobs(jobs: list[DrawnJob], how: JointTraining) -> list[HonestJob]:
    """These jobs, trained like this, for the lengths of their reports."""
    return [
        HonestJob(
            replace(job.federated, training=how.training),
            how.batches(job.federated.partition.sizes),
            job.seed,
            job.solo if how.start == SOLO_MEAN else None,
        )
        for job in jobs
    ]


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


def _restricted(side: ServerSide, sizes: IntArray, asked: IntArray, labels: FloatArray | IntArray) -> ServerSide:
    """The pilot federation of the clients asked, with the samples that they label."""
    of_all = np.zeros(len(sizes), dtype=np.int64)
    of_all[asked] = labels.astype(np.int64)
    return replace(side, pilot=ask_for_labels(side.pilot, of_all, PILOT_SEED))
