"""Which trial runs a pilot consists of: one list, for the planner and for the studies. Looks at the mechanism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from truthfl.mechanism.checks import FloatArray

Batches = Callable[[int], FloatArray]
"""Every client's batch size, from the one that the design names."""


@dataclass(frozen=True)
class PilotDesign:
    """How much a pilot may compute, and of what kind.

    seeds           runs of each lie
    honest_seeds    runs of each honest batch size: what it does to the loss is small, and takes more runs to see
    search_seeds    runs of each step size that is tried; as many as `seeds` unless given
    batch_sizes     of the honest runs
    report_scales   γ of the runs in which one client scales her report
    lie_batch_size  everybody's batch where somebody lies, where a step size is tried, where gradients are measured
    step_range      the smallest and the largest step size that is tried; the one taken is `StepSearch.bottom`

    Batches much smaller than those that will be asked for are left out: when everybody's are tiny at once, the loss
    rises faster than c + v/D, and work would be overvalued.
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
        """How many different seeds there are in all; they count from 0."""
        return max(self.seeds, self.honest_seeds, self.search_seeds or 0)

    def runs(self, count: int) -> list[RunKind]:
        """Those of a federation of so many clients, each of whom lies in turn."""
        every = same_for_all(count)
        return [*self.honest_runs(every), *self.lie_runs(every(self.lie_batch_size), range(count))]

    def honest_runs(self, batches: Batches) -> list[RunKind]:
        """Everybody honest, once for each batch size."""
        return [RunKind.honest(batches(size), self.honest_seeds) for size in self.batch_sizes]

    def lie_runs(self, batch_size: FloatArray, liars: Sequence[int]) -> list[RunKind]:
        """One of these clients after the other does not label; then, for each scale, scales her report."""
        honest = RunKind.honest(batch_size, self.seeds)
        idle = [honest.but(client, labeling_effort=0.0) for client in liars]
        scaled = [honest.but(client, report_scale=scale) for scale in self.report_scales for client in liars]
        return [*idle, *scaled]


def same_for_all(count: int) -> Batches:
    """Every one of so many clients has the batch size that the design names."""
    return lambda size: np.full(count, float(size))


@dataclass(frozen=True, eq=False)
class RunKind:
    """What everybody does in one kind of run, arrays (N,), and with which seeds it is made."""

    labeling_effort: FloatArray
    batch_size: FloatArray
    report_scale: FloatArray
    draws: range

    @classmethod
    def honest(cls, batch_size: FloatArray, seeds: int) -> RunKind:
        """Everybody labels, and reports what she computed; seeds count from 0."""
        return cls(np.ones(len(batch_size)), batch_size, np.ones(len(batch_size)), range(seeds))

    @property
    def labels_honestly(self) -> bool:
        """Whether everybody does."""
        return bool((self.labeling_effort == 1).all())

    def but(self, client: int, *, labeling_effort: float = 1.0, report_scale: float = 1.0) -> RunKind:
        """The same, but for one client."""
        her = np.arange(len(self.batch_size)) == client
        effort = np.where(her, labeling_effort, self.labeling_effort)
        return replace(self, labeling_effort=effort, report_scale=np.where(her, report_scale, self.report_scale))

    def with_draws(self, first: int) -> RunKind:
        """The same, with as many seeds, counted from there."""
        return replace(self, draws=range(first, first + len(self.draws)))
