"""Pilot runs for the loss model; the spread of the final loss, and how much higher it is if training ends early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.setting import FloatArray, Strategies
from truthfl.learning.data.partition import Federated
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.pilot.reduced_federation import ReducedFederation
from truthfl.learning.training.draws import Purpose, generator
from truthfl.learning.training.train import honest_runs, train

Batches = Callable[[int], FloatArray]
"""Function from a batch size of the design to the batch sizes of all clients."""


@dataclass(frozen=True)
class PilotDesign:
    """The kinds of runs of a pilot, and the number of seeds of each.

    seeds           runs of each lie
    honest_seeds    runs of each honest batch size; more, because the effect of the batch size is small
    search_seeds    runs of each step size that is tried; `seeds` if None
    batch_sizes     of the honest runs
    report_scales   γ of the runs in which one client scales their report
    lie_batch_size  batch size of all clients in runs with a lie, in the step search and when gradients are measured
    step_range      the smallest and the largest step size that is tried

    No batch sizes are far below a contract's. If all clients' batches are tiny, the loss rises faster than c + v/D, and
    work would be overvalued.
    """

    seeds: int = 8
    honest_seeds: int = 60
    search_seeds: int | None = None
    batch_sizes: tuple[int, ...] = (20, 40, 80, 160)
    report_scales: tuple[float, ...] = (0.5, 1.5)
    lie_batch_size: int = 50
    step_range: tuple[float, float] = (1e-2, 10.0)

    @property
    def most_seeds(self) -> int:
        """The number of different seeds of all runs; they are counted from 0."""
        return max(self.seeds, self.honest_seeds, self.search_seeds or 0)

    def runs(self, count: int) -> list[RunKind]:
        """The runs of a federation of `count` clients, each of whom lies in turn."""
        batches = equal_batches(count)
        return [*self.honest_runs(batches), *self.lie_runs(batches(self.lie_batch_size), range(count))]

    def honest_runs(self, batches: Batches) -> list[RunKind]:
        """Honest runs, one kind for each batch size."""
        return [RunKind.honest(batches(size), self.honest_seeds) for size in self.batch_sizes]

    def lie_runs(self, batch_size: FloatArray, liars: Sequence[int]) -> list[RunKind]:
        """Runs with one lie: each of `liars` in turn does not label; then, for each scale, scales their report."""
        honest = RunKind.honest(batch_size, self.seeds)
        idle = [honest.with_lie(client, labeling_effort=0.0) for client in liars]
        scaled = [honest.with_lie(client, report_scale=scale) for scale in self.report_scales for client in liars]
        return [*idle, *scaled]


def equal_batches(count: int) -> Batches:
    """All `count` clients have the design's batch size."""
    return lambda size: np.full(count, float(size))


@dataclass(frozen=True, eq=False)
class RunKind:
    """The strategies of all clients in one kind of run, arrays (N,), and the seeds of the runs."""

    labeling_effort: FloatArray
    batch_size: FloatArray
    report_scale: FloatArray
    seeds: range

    @classmethod
    def honest(cls, batch_size: FloatArray, seeds: int) -> RunKind:
        """Honest runs with these batches; seeds are counted from 0."""
        return cls(np.ones(len(batch_size)), batch_size, np.ones(len(batch_size)), range(seeds))

    @property
    def labels_honestly(self) -> bool:
        """Whether all clients label all their samples."""
        return bool((self.labeling_effort == 1).all())

    def with_lie(self, client: int, *, labeling_effort: float = 1.0, report_scale: float = 1.0) -> RunKind:
        """The same runs with another labeling effort and report scale of one client."""
        liar = np.arange(len(self.batch_size)) == client
        effort = np.where(liar, labeling_effort, self.labeling_effort)
        return replace(self, labeling_effort=effort, report_scale=np.where(liar, report_scale, self.report_scale))

    def with_first_seed(self, first: int) -> RunKind:
        """The same runs with as many seeds, counted from `first`."""
        return replace(self, seeds=range(first, first + len(self.seeds)))


KINDS_TOGETHER = 4  # of runs in which a client does not label
LIE_BATCH_FACTOR = 2  # of paired runs: samples per round, relative to ten clients with the design's batch size


@dataclass(frozen=True, eq=False)
class Pilot:
    """Strategies (runs, N) and final losses (runs,) of a pilot's runs.

    honest_loss  of paired runs: the loss of an honest run with the same draws; NaN for honest runs
    """

    strategies: Strategies
    loss: FloatArray
    honest_loss: FloatArray | None = None

    @property
    def all_finite(self) -> bool:
        """Whether no run diverged."""
        paired = 0.0 if self.honest_loss is None else self.honest_loss[~np.isnan(self.honest_loss)].sum()
        return bool(np.isfinite(self.loss).all() and np.isfinite(paired))


def pilot_runs(federated: Federated, evaluation: LabeledSamples, design: PilotDesign | None = None) -> Pilot:
    """Honest runs at several batch sizes; runs in which one client in turn does not label, or scales their report.

    Losses are those on the evaluation data.
    """
    kinds = (design or PilotDesign()).runs(len(federated.partition))
    return Pilot(strategies_of(kinds), final_losses(federated, evaluation, kinds))


def paired_pilot_runs(
    reduced: ReducedFederation, evaluation: LabeledSamples, design: PilotDesign | None = None
) -> Pilot:
    """The runs of a reduced federation: its single clients lie in turn, each paired with honest runs of the same draws.

    The effect of one client with a small weight is less than the noise between seeds. So it is measured as a difference
    between paired runs, which need half as many seeds. A liar's batch is at least the design's, whatever their weight,
    because a tiny batch is mostly noise. Each client has their own seeds.
    """
    design = design or PilotDesign()
    design = replace(design, seeds=max(2, design.seeds // 2))
    honest, lies, partners = design.honest_runs(reduced.batches), [], []
    for client in range(reduced.single_clients):
        batches = reduced.batches(LIE_BATCH_FACTOR * design.lie_batch_size)
        batches[client] = max(batches[client], design.lie_batch_size)
        partners.append(RunKind.honest(batches, design.seeds).with_first_seed(client * design.seeds))
        lies.append([kind.with_first_seed(client * design.seeds) for kind in design.lie_runs(batches, [client])])
    lying = [kind for kinds in zip(*lies, strict=True) for kind in kinds]
    honest_loss, partner_loss, lying_loss = (
        final_losses(reduced.federated, evaluation, kinds) for kinds in (honest, partners, lying)
    )
    return Pilot(
        strategies_of([*honest, *lying]),
        np.concatenate((honest_loss, lying_loss)),
        np.concatenate((np.full(len(honest_loss), np.nan), np.tile(partner_loss, len(lies[0])))),
    )


def strategies_of(kinds: Sequence[RunKind]) -> Strategies:
    """The strategies of all runs, (runs, N), ordered by kind and seed."""
    times, fields = [len(kind.seeds) for kind in kinds], ("labeling_effort", "batch_size", "report_scale")
    return Strategies(*(np.repeat([getattr(kind, field) for kind in kinds], times, axis=0) for field in fields))


def final_losses(federated: Federated, evaluation: LabeledSamples, kinds: Sequence[RunKind]) -> FloatArray:
    """The losses after the last round, in the order of `strategies_of`.

    Runs in which a client does not label have their own labels. To limit memory, few kinds are trained together.
    """
    losses = []
    for labeled, group in groupby(kinds, lambda kind: kind.labels_honestly):
        alike = list(group)
        size = len(alike) if labeled else KINDS_TOGETHER
        for together in (alike[first : first + size] for first in range(0, len(alike), size)):
            seeds = np.concatenate([kind.seeds for kind in together])
            trained = train(federated, strategies_of(together), seeds, evaluate_on={"evaluation": evaluation})
            losses.append(trained.evaluations["evaluation"].loss[:, -1])
    return np.concatenate(losses)


RESAMPLED_PILOTS = 12
SAMPLES_FOR_VARIANCE = 1000


def spread_of_loss(pilot: Federated, test: LabeledSamples, batches: NDArray[np.float64]) -> tuple[float, float]:
    """The standard deviation of the final loss between jobs, and its variance between the test samples of one job.

    Jobs are simulated by a bootstrap. Each trial uses another seed and resamples the pilot's samples with replacement.
    """
    losses, params = honest_runs([(resampled(pilot, k), batches, k) for k in range(RESAMPLED_PILOTS)], test)
    variances = [float(np.var(sample_losses(pilot, own, test))) for own in params]
    return float(np.std(losses, ddof=1)), float(np.mean(variances))


def resampled(pilot: Federated, trial: int) -> Federated:
    """The same federation with its samples resampled with replacement."""
    drawn = generator(trial, Purpose.TEST).integers(0, len(pilot.data), len(pilot.data))
    return replace(pilot, partition=replace(pilot.partition, rows=drawn[pilot.partition.rows]))


def sample_losses(federated: Federated, params: NDArray[np.float32], test: LabeledSamples) -> NDArray[np.float64]:
    """The losses of single test samples, at most `SAMPLES_FOR_VARIANCE` of them, evenly spaced."""
    model, features, labels = federated.model, test.features, test.labels
    chosen = np.linspace(0, len(labels) - 1, min(len(labels), SAMPLES_FOR_VARIANCE)).astype(int)
    return np.array([model.loss(params, features[k : k + 1], labels[k : k + 1]) for k in chosen])


SEEDS = 4
MOST_STEPS = 20  # the loss is measured after at most this many even shares of the rounds


def measure_loss_by_rounds(federated: Federated, test: LabeledSamples, batches: FloatArray) -> tuple[float, ...]:
    """The rise of the loss of honest training if it ends after 0, 1/k, 2/k, … of the rounds; the last one is 0.

    k is `MOST_STEPS`, or the number of rounds if that is smaller. A loss lower than a later one counts as that one.
    """
    rounds, seeds = federated.training.rounds, np.arange(SEEDS)
    steps = min(rounds, MOST_STEPS)
    honest = Strategies.truthful(np.maximum(np.rint(batches), 1.0))
    trained = train(federated, honest, seeds, evaluate_on={"test": test}, every=rounds // steps)
    start = np.mean(
        [federated.model.loss(federated.model.init(int(seed)), test.features, test.labels) for seed in seeds]
    )
    measured = np.concatenate(([start], trained.evaluations["test"].loss.mean(axis=0)))
    loss = np.interp(np.linspace(0, rounds, steps + 1), np.concatenate(([0], trained.rounds)), measured)
    rise = np.maximum.accumulate(loss[::-1])[::-1] - loss[-1]
    return tuple(rise.tolist())
