"""Trains a pilot's runs: honest ones at several batch sizes, and runs in which one client lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from truthfl.learning.federated import Federated
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.pilot_design import PilotDesign, RunKind
from truthfl.learning.reduced_federation import ReducedFederation
from truthfl.learning.training import train
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.strategies import Strategies

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
    """Honest runs at several batch sizes; runs in which one client in turn does not label, or scales her report.

    Losses are those on the evaluation data.
    """
    kinds = (design or PilotDesign()).runs(len(federated.partition))
    return Pilot(strategies_of(kinds), final_losses(federated, evaluation, kinds))


def paired_pilot_runs(
    reduced: ReducedFederation, evaluation: LabeledSamples, design: PilotDesign | None = None
) -> Pilot:
    """The runs of a reduced federation: its single clients lie in turn, each paired with honest runs of the same draws.

    The effect of one client of small weight is less than the noise between seeds, so it is measured as a difference
    between paired runs; these need half as many seeds. A liar's batch is at least that of the design, whatever her
    weight, because a tiny batch is mostly noise. Each client has seeds of her own.
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

    Runs in which a client does not label have labels of their own; to bound memory, few kinds are trained together.
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
