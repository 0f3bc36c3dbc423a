"""A pilot's trial runs: honest ones at several batch sizes, and such in which one client lies. Each ends with a loss.

Looks at `pilot_design`, `federated`, `reduced_federation`, `labels`, `training`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from truthfl.learning.federated import Federated
from truthfl.learning.images import LabeledImages
from truthfl.learning.pilot_design import PilotDesign, RunKind
from truthfl.learning.reduced_federation import ReducedFederation
from truthfl.learning.training import train
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.strategies import Strategies

QUIETER = 2  # times as many samples as ten clients draw, where one of many lies


@dataclass(frozen=True, eq=False)
class Pilot:
    """Runs and the loss each ended with: strategies (runs, N), loss (runs,).

    honest_loss is, of a run in which somebody lies, the loss of an honest run with the same draws; NaN of honest runs.
    """

    strategies: Strategies
    loss: FloatArray
    honest_loss: FloatArray | None = None

    @property
    def all_finite(self) -> bool:
        """No run diverged."""
        paired = 0.0 if self.honest_loss is None else self.honest_loss[~np.isnan(self.honest_loss)].sum()
        return bool(np.isfinite(self.loss).all() and np.isfinite(paired))


def pilot_runs(federated: Federated, evaluation: LabeledImages, design: PilotDesign | None = None) -> Pilot:
    """Honest runs at several batch sizes; runs in which one client in turn does not label, or scales her report.

    The loss is that on the evaluation data.
    """
    kinds = (design or PilotDesign()).runs(len(federated.partition))
    return Pilot(strategies_of(kinds), final_losses(federated, evaluation, kinds))


def paired_pilot_runs(few: ReducedFederation, evaluation: LabeledImages, design: PilotDesign | None = None) -> Pilot:
    """The same for a reduced federation: its single clients lie, and each lie is held against honesty, draw by draw.

    A client of little weight moves the loss by less than other draws do; with the same draws it shows by how much. Her
    own batch is the one that the design names, whatever her weight, for the average over a batch of one is mostly
    noise; the others' are smaller, as there are many. Half the seeds do, each client's being other ones.
    """
    design = design or PilotDesign()
    design = replace(design, seeds=max(2, design.seeds // 2))
    honest, lies, truths = design.honest_runs(few.batches), [], []
    for client in range(few.alone):
        batches = few.batches(QUIETER * design.lie_batch_size)
        batches[client] = max(batches[client], design.lie_batch_size)
        truths.append(RunKind.honest(batches, design.seeds).with_draws(client * design.seeds))
        lies.append([kind.with_draws(client * design.seeds) for kind in design.lie_runs(batches, [client])])
    by_lie = [kind for kinds in zip(*lies, strict=True) for kind in kinds]
    without, by_truth, with_lie = (final_losses(few.federated, evaluation, kinds) for kinds in (honest, truths, by_lie))
    return Pilot(
        strategies_of([*honest, *by_lie]),
        np.concatenate((without, with_lie)),
        np.concatenate((np.full(len(without), np.nan), np.tile(by_truth, len(lies[0])))),
    )


def strategies_of(kinds: Sequence[RunKind]) -> Strategies:
    """What everybody does in every run, (runs, N): kind after kind, seed after seed."""
    times, fields = [len(kind.draws) for kind in kinds], ("labeling_effort", "batch_size", "report_scale")
    return Strategies(*(np.repeat([getattr(kind, field) for kind in kinds], times, axis=0) for field in fields))


def final_losses(federated: Federated, evaluation: LabeledImages, kinds: Sequence[RunKind]) -> FloatArray:
    """The loss after the last round, run after run.

    Runs in which a client does not label have labels of their own; to bound memory, they are trained kind by kind.
    """
    losses = []
    for labeled, some in groupby(kinds, lambda kind: kind.labels_honestly):
        alike = list(some)
        for together in [alike] if labeled else [[kind] for kind in alike]:
            draws = np.concatenate([kind.draws for kind in together])
            done = train(federated, strategies_of(together), draws, watch={"evaluation": evaluation})
            losses.append(done.watched["evaluation"].loss[:, -1])
    return np.concatenate(losses)
