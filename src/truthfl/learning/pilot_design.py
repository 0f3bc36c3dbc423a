"""The list of training runs of a pilot, used by planning and by the studies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from truthfl.mechanism.checks import FloatArray

Batches = Callable[[int], FloatArray]
"""Function from a batch size of the design to the batch sizes of all clients."""


@dataclass(frozen=True)
class PilotDesign:
    """The kinds of runs of a pilot, and the number of seeds of each.

    seeds           runs of each lie
    honest_seeds    runs of each honest batch size; more, because the effect of the batch size is small
    search_seeds    runs of each step size that is tried; `seeds` if None
    batch_sizes     of the honest runs
    report_scales   γ of the runs in which one client scales her report
    lie_batch_size  batch size of all clients in runs with a lie, in the step search and when gradients are measured
    step_range      the smallest and the largest step size that is tried

    There are no batch sizes far below those of a contract: if all clients' batches are tiny, the loss rises faster than
    c + v/D, and work would be overvalued.
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
        """Runs with one lie: each of `liars` in turn does not label; then, for each scale, scales her report."""
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
