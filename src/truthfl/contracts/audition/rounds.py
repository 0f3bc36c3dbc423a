"""The joint training after the audition, tried out on pilot data: its start, rounds, step, momentum and batch.

The rounds start from the mean of the solo models ("round zero"), or from the common start where that is better. Losses
are those of calibrated models. docs/mechanism.md, section 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.formulas import COMMON, SOLO_MEAN
from truthfl.contracts.setting import FloatArray, IntArray, Strategies, Training
from truthfl.learning.calibration import cross_calibrated, fit_calibration
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.models.model import Params
from truthfl.learning.people.behaviours import FREE_RIDER, TRUTHFUL, behaviour
from truthfl.learning.people.profile import Profile
from truthfl.learning.pilot.pilot_clients import draw_in_turns
from truthfl.learning.solo import Recipe, solo_mean, train_all_alone
from truthfl.learning.training.aggregation import MEAN, is_own
from truthfl.learning.training.train import train

MOST_CLIENTS = (
    10  # of a drawn job: the loss depends on the number of labels, and the pilot data do not suffice for more
)
TUNED_DRAWS, CURVE_DRAWS, LEVEL_DRAWS = 3, 6, 8
FIRST_SEED = 500
MOMENTA = (0.0, 0.5, 0.8, 0.9)
FIRST_MOMENTUM = 0.8
STEP_SIZES = tuple(np.geomspace(0.01, 2.5, 7).tolist())
STEPS_AROUND = (0.6, 1.0, 1.7)  # factors of a step size, when another momentum is tried
ROUNDS_TRIED = (0.0, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0)  # shares of the most rounds
FIRST_BATCH = 32
BATCH_FACTORS = (0.5, 2.0, 4.0, 16.0)
SHARES = (0.3, 0.55, 1.0)  # of the labels, for the joint curve
WORTH_ELICITING = 0.1  # of label cost: computing that is too expensive for a fixed amount must be worth this much more


@dataclass(frozen=True, eq=False)
class DrawnJob:
    """Clients drawn from the pilot data, with as many labels as they are asked for.

    federated  their federation
    models     (clients, parameters) their solo models
    labels     how many different samples they hold together
    """

    federated: Federated
    models: NDArray[np.float32]
    seed: int
    labels: int

    @cached_property
    def solo(self) -> Params:
        """The weighted mean of the solo models."""
        weight = self.federated.weight
        return solo_mean(self.models, (weight / weight.sum()).tolist())

    def of_clients(self, chosen: IntArray) -> DrawnJob:
        """The job of these clients alone."""
        rows = [self.federated.partition.rows_of(int(client)) for client in chosen]
        starts = np.concatenate(([0], np.cumsum([len(own) for own in rows])))
        partition = Partition(np.concatenate(rows), starts)
        federated = self.federated.of_others(partition, participation=self.federated.participation[chosen])
        return DrawnJob(federated, self.models[chosen], self.seed, len(np.unique(partition.rows)))


def draw_jobs(side: ServerSide, sizes: IntArray, recipe: Recipe, draws: int, first_seed: int) -> list[DrawnJob]:
    """`draws` jobs of clients with these numbers of labels; of many clients, `MOST_CLIENTS` evenly over the numbers."""
    chosen = np.argsort(sizes, kind="stable")
    chosen = np.sort(chosen[np.linspace(0, len(sizes) - 1, min(len(sizes), MOST_CLIENTS)).astype(int)])
    own = tuple(int(size) for size in sizes[chosen])
    jobs = []
    for seed in range(first_seed, first_seed + draws):
        partition = draw_in_turns(side, own, seed)
        federated = side.pilot.of_others(partition, participation=side.pilot.participation[chosen])
        data = federated.data
        samples = [(data.features[rows], data.labels[rows]) for rows in map(partition.rows_of, range(len(partition)))]
        models = train_all_alone(federated.model, samples, recipe, seed, classes=data.classes)
        distinct = len(np.unique(partition.rows))
        jobs.append(DrawnJob(federated, models, seed, distinct))
    return jobs


@dataclass(frozen=True)
class JointTraining:
    """How the joint model is trained after the audition.

    training  rounds, local steps, step size, momentum
    start     COMMON or SOLO_MEAN
    batch     of every client, up to their labels
    """

    training: Training
    start: str
    batch: int

    @property
    def samples(self) -> int:
        """T·H·D: the samples in one client's gradients over all rounds."""
        return self.training.total_steps * self.batch

    def batches(self, sizes: IntArray) -> FloatArray:
        """D' of clients with these numbers of labels."""
        return np.asarray(np.minimum(float(self.batch), np.asarray(sizes, dtype=float)))

    def models(self, jobs: Sequence[DrawnJob]) -> NDArray[np.float32]:
        """The joint models of these jobs if all are honest, (jobs, parameters)."""
        return np.stack([_trained([self], job)[0] for job in jobs])

    def losses(self, jobs: Sequence[DrawnJob], test: LabeledSamples) -> tuple[FloatArray, FloatArray]:
        """(jobs,) The calibrated losses of the joint models, and their accuracies."""
        return cross_calibrated(jobs[0].federated.model, self.models(jobs), test)


def _trained(options: Sequence[JointTraining], job: DrawnJob) -> NDArray[np.float32]:
    """The joint models of this job by options that differ in the step size alone, (options, parameters)."""
    how = options[0]
    start = job.solo if how.start == SOLO_MEAN else job.federated.model.init(job.seed)
    if not how.training.rounds:
        return np.repeat(start[None], len(options), axis=0)
    honest = Strategies.truthful(how.batches(job.federated.partition.sizes))
    here, steps = replace(job.federated, training=how.training), [one.training.step_size for one in options]
    with np.errstate(over="ignore", invalid="ignore"):
        return train(here, honest, [job.seed] * len(options), step_sizes=steps, start=start).params


def _mean_losses(options: Sequence[JointTraining], jobs: Sequence[DrawnJob], test: LabeledSamples) -> list[float]:
    """The calibrated loss of each option, averaged over the jobs; infinite where training diverges."""
    groups: dict[JointTraining, list[int]] = {}
    for number, one in enumerate(options):
        groups.setdefault(replace(one, training=replace(one.training, step_size=1.0)), []).append(number)
    losses = [0.0] * len(options)
    for numbers in groups.values():
        models = np.stack([_trained([options[k] for k in numbers], job) for job in jobs], axis=1)
        for k, of_option in zip(numbers, models, strict=True):
            found = cross_calibrated(jobs[0].federated.model, of_option, test)[0]
            losses[k] = float(found.mean()) if np.isfinite(of_option).all() else np.inf
    return losses


@dataclass(frozen=True)
class RoundPrices:
    """What rounds cost and are worth.

    loss_value    κ
    sample_cost   of one sample in a gradient, by all clients together
    label_cost    of all labels
    most_samples  of one client in all rounds, so that computing is at most a small share of anybody's pay
    """

    loss_value: float
    sample_cost: float
    label_cost: float
    most_samples: float

    def cost(self, how: JointTraining) -> float:
        """The cost of all computing."""
        return self.sample_cost * how.samples

    def is_small(self, how: JointTraining) -> bool:
        """Whether computing is cheap enough to be paid a fixed amount."""
        return how.samples <= self.most_samples


@dataclass(frozen=True, eq=False)
class Tuned:
    """The joint training that serves the server best, and what was tried, each with its mean calibrated loss."""

    best: JointTraining
    tried: dict[JointTraining, float] = field(default_factory=dict)


def tune_rounds(
    jobs: Sequence[DrawnJob],
    test: LabeledSamples,
    most: Training,
    prices: RoundPrices,
    *,
    tune_step: bool,
    aggregation: str = MEAN,
    near: JointTraining | None = None,
) -> Tuned:
    """Start, rounds, step, momentum and batch: one after the other, each at the best of those before.

    most  with the most rounds, and the step size if it is given
    near  what was best with other numbers of labels: momentum and batch are kept, and the step is searched near it
    """
    smallest = min(int(job.federated.partition.sizes.min()) for job in jobs)
    tried: dict[JointTraining, float] = {}

    def cost(how: JointTraining) -> float:
        return prices.loss_value * tried[how] + prices.cost(how)

    def best(options: Sequence[JointTraining]) -> JointTraining:
        new = [one for one in dict.fromkeys(options) if one not in tried]
        tried.update(zip(new, _mean_losses(new, jobs, test), strict=True))
        return min(options, key=cost)

    batch = int(np.clip(min(FIRST_BATCH, prices.most_samples / max(most.total_steps, 1)), 1, smallest))
    momentum = 0.0 if is_own(aggregation) else FIRST_MOMENTUM
    first = JointTraining(replace(most, momentum=momentum), SOLO_MEAN, batch)
    if most.rounds == 0:
        return Tuned(best([first]), tried)

    def with_steps(how: JointTraining, momentum: float, steps: Sequence[float]) -> list[JointTraining]:
        """The same training with this momentum, and these step sizes if they are tuned."""
        sizes = steps if tune_step else [most.step_size]
        return [
            replace(how, training=replace(how.training, momentum=momentum, step_size=float(f"{size:.4g}")))
            for size in sizes
        ]

    def around(how: JointTraining, momentum: float) -> list[JointTraining]:
        usual = how.training.step_size * (1.0 - momentum) / (1.0 - how.training.momentum)
        return with_steps(how, momentum, [usual * factor for factor in STEPS_AROUND])

    if near is None:
        chosen = best(with_steps(first, momentum, STEP_SIZES))
        if not is_own(aggregation):
            chosen = best([chosen, *(one for other in MOMENTA for one in around(chosen, other))])
        batches = [int(np.clip(round(factor * chosen.batch), 1, smallest)) for factor in BATCH_FACTORS]
        chosen = best([chosen, *(replace(chosen, batch=size) for size in batches)])
    else:
        chosen = replace(near, start=SOLO_MEAN, batch=min(near.batch, smallest))
        chosen = replace(chosen, training=replace(near.training, rounds=most.rounds))
    chosen = best([chosen, *around(chosen, chosen.training.momentum)])
    numbers = sorted({round(share * most.rounds) for share in ROUNDS_TRIED})
    options = [
        replace(chosen, start=start, training=replace(chosen.training, rounds=number))
        for start in (SOLO_MEAN, COMMON)
        for number in numbers
        if number or start == SOLO_MEAN
    ]
    chosen = best(options)
    if prices.is_small(chosen):
        return Tuned(chosen, tried)
    small = [one for one in tried if prices.is_small(one)]
    cheapest = best(small or options[:1])
    worth = cost(cheapest) - cost(chosen)
    return Tuned(cheapest if worth < WORTH_ELICITING * prices.label_cost else chosen, tried)


@dataclass(frozen=True)
class JointCurve:
    """The joint loss by labels: it falls as `curve` / (labels of all); `error` is the standard error of `curve`."""

    curve: float
    error: float


def measure_joint_curve(
    side: ServerSide, sizes: IntArray, recipe: Recipe, how: JointTraining, draws: int = CURVE_DRAWS
) -> JointCurve:
    """The loss of jobs with a part of their labels, fitted by c + A / N, N different samples; averaged over draws."""
    losses, inverse = np.empty((draws, len(SHARES))), np.empty((draws, len(SHARES)))
    for k, share in enumerate(SHARES):
        labels = np.maximum(np.rint(share * sizes), 1).astype(np.int64)
        jobs = draw_jobs(side, labels, recipe, draws, FIRST_SEED)
        losses[:, k] = how.losses(jobs, side.test)[0]
        inverse[:, k] = [1.0 / job.labels for job in jobs]
    x = inverse - inverse.mean(axis=1, keepdims=True)
    slopes = (losses * x).sum(axis=1) / np.square(x).sum(axis=1)
    return JointCurve(float(slopes.mean()), float(slopes.std(ddof=1) / sqrt(draws)))


@dataclass(frozen=True)
class JointLevel:
    """The calibrated joint loss of honest clients, over draws of clients.

    loss, accuracy  their means
    zero, zero_accuracy   of the start: the model before the first round
    spread          standard deviation of the loss between draws; `draws` is their number
    sample_variance  of the loss between test samples
    """

    loss: float
    accuracy: float
    zero: float
    zero_accuracy: float
    spread: float
    draws: int
    sample_variance: float

    def error(self, test_samples: int) -> float:
        """The standard deviation of a job's tested loss around `loss`."""
        return sqrt(self.spread**2 * (1.0 + 1.0 / self.draws) + self.sample_variance / test_samples)


def measure_joint_level(jobs: Sequence[DrawnJob], test: LabeledSamples, how: JointTraining) -> JointLevel:
    """The joint loss of these jobs. The clients of one pilot may be lucky, and the job's clients differ again."""
    losses, accuracies = how.losses(jobs, test)
    before = replace(how, training=replace(how.training, rounds=0))
    zero, zero_accuracy = before.losses(jobs, test)
    return JointLevel(
        float(losses.mean()),
        float(accuracies.mean()),
        float(zero.mean()),
        float(zero_accuracy.mean()),
        float(losses.std(ddof=1)),
        len(jobs),
        sample_variance(jobs[0], test, how),
    )


def sample_variance(job: DrawnJob, test: LabeledSamples, how: JointTraining) -> float:
    """The variance of the calibrated loss between test samples."""
    model, params = job.federated.model, how.models([job])[0]
    scores = model.scores(params, test.features).astype(np.float64)
    log_p = fit_calibration(model, params, test).log_probabilities(scores)
    return float(np.var(log_p[np.arange(len(test)), test.labels]))


VISIBLE_ERRORS = 2.0  # the effect of the batch size is used if it is at least this many standard errors above 0
BATCHES_COMPARED = (0.35, 1.0, 2.8)  # factors of the batch, to see what it does
ABSENT_CLIENTS = 3
MOST_STEPS = 20  # the loss is measured after at most this many even shares of the rounds
PRESENT_SHARES = (0.5, 0.75, 1.0)


def measure_sampling(jobs: Sequence[DrawnJob], test: LabeledSamples, how: JointTraining) -> float:
    """Σ v_i: the loss rises with the batch size as this / D; 0 where that is not clearly seen."""
    smallest = min(int(job.federated.partition.sizes.min()) for job in jobs)
    sizes = np.unique([int(np.clip(round(factor * how.batch), 1, smallest)) for factor in BATCHES_COMPARED])
    if len(sizes) < 2:
        return 0.0
    losses = np.stack([replace(how, batch=int(size)).losses(jobs, test)[0] for size in sizes])
    x = 1.0 / sizes - (1.0 / sizes).mean()
    slopes = (losses * x[:, None]).sum(axis=0) / np.square(x).sum()
    error = float(slopes.std(ddof=1)) / sqrt(len(jobs))
    return float(slopes.mean()) if slopes.mean() > VISIBLE_ERRORS * error else 0.0


def measure_absence(jobs: Sequence[DrawnJob], test: LabeledSamples, how: JointTraining) -> float:
    """By how much the loss rises if one client of mean weight sends nothing, or an echo, whichever is less."""
    kinds = (TRUTHFUL, FREE_RIDER, behaviour("echo"))
    models: list[list[Params]] = [[], [], []]
    for job in jobs:
        count = len(job.federated.partition)
        assigned = how.batches(job.federated.partition.sizes).astype(np.int64)
        here = replace(job.federated, training=how.training)
        start = job.solo if how.start == SOLO_MEAN else None
        clients = np.unique(np.linspace(0, count - 1, min(count, ABSENT_CLIENTS)).astype(int)).tolist()
        works = [(0, 0), *((kind, client) for kind in (1, 2) for client in clients)]
        profiles = [
            Profile.of_kinds(kinds, np.where(np.arange(count) == client, kind, 0), assigned) for kind, client in works
        ]
        with np.errstate(over="ignore", invalid="ignore"):
            trained = train(here, profiles, [job.seed] * len(works), start=start)
        for (kind, _), params in zip(works, trained.params, strict=True):
            models[kind].append(params)
    model = jobs[0].federated.model
    honest, nothing, echo = (cross_calibrated(model, np.stack(of_kind), test)[0].mean() for of_kind in models)
    return float(min(nothing, echo) - honest)


def measure_presence_curve(jobs: Sequence[DrawnJob], test: LabeledSamples, how: JointTraining) -> float:
    """By how much the loss rises with 1 / (labels taking part) when clients are missing, and whole kinds of data."""
    slopes = []
    for job in jobs:
        count = len(job.federated.partition)
        order = np.random.default_rng(job.seed).permutation(count)
        models, inverse = [], []
        for share in PRESENT_SHARES:
            present = np.sort(order[: max(1, round(share * count))])
            models.append(how.models([job.of_clients(present)])[0])
            inverse.append(1.0 / float(job.federated.partition.sizes[present].sum()))
        losses = cross_calibrated(job.federated.model, np.stack(models), test)[0]
        x = np.array(inverse) - np.mean(inverse)
        slopes.append(float(losses @ x / max(float(x @ x), 1e-300)))
    return max(float(np.mean(slopes)), 0.0)


def measure_loss_by_rounds(jobs: Sequence[DrawnJob], test: LabeledSamples, how: JointTraining) -> tuple[float, ...]:
    """The rise of the loss of honest training if it ends after 0, 1/k, 2/k, … of the rounds; the last one is 0."""
    rounds = how.training.rounds
    if not rounds:
        return ()
    moments = np.linspace(0, rounds, min(rounds, MOST_STEPS) + 1)
    numbers = np.unique(np.rint(moments).astype(int))
    losses = [
        replace(how, training=replace(how.training, rounds=int(number))).losses(jobs, test)[0].mean()
        for number in numbers
    ]
    loss = np.interp(moments, numbers, losses)
    rise = np.maximum.accumulate(loss[::-1])[::-1] - loss[-1]
    return tuple(rise.tolist())
