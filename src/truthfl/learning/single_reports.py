"""Rounds in which the server looks at every report: robust aggregation, reports that may be too long or are missing.

Slower than `engines`, which add up clients as they go, and used only where the rule for reports needs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.aggregation import MEAN, limited_changes, new_combiner, taken_weights
from truthfl.learning.client_changes import ClientChanges
from truthfl.learning.engines import Engine, Run
from truthfl.learning.federated import Federated
from truthfl.learning.model import Labels, Params


def needs_single_reports(federated: Federated, run: Run) -> bool:
    """Whether the rule for reports can treat a report of this run otherwise than adding it."""
    rule, special = federated.rule, run.special_clients
    longer = bool((np.abs(run.report_scale) > 1.0).any()) or bool(special and (special.fabricators or special.rescaled))
    empty = bool((run.report_scale == 0).any()) or special is not None
    return rule.aggregation != MEAN or (bool(rule.bounds) and longer) or (rule.rescales and not rule.clips and empty)


class SingleReports:
    """An engine for one run that combines single reports by the federation's rule.

    refused  how many reports of each client were too long, of those that are made here
    """

    def __init__(self, federated: Federated, engine: Engine, run: Run) -> None:
        self.federated, self.engine, self.run = federated, engine, run
        self.changes = ClientChanges(federated, engine, run)
        self.pack, self.unpack, self.evaluate = engine.pack, engine.unpack, engine.evaluate
        self.chunk_update, self.combine, self.rescale = engine.chunk_update, engine.combine, engine.rescale
        self.refused: Counter[int] = Counter()
        self.combined = new_combiner(federated.rule.aggregation)

    def relabel(self, run: Run, samples: NDArray[np.int64], labels: Labels) -> None:
        self.engine.relabel(run, samples, labels)
        self.engine.relabel(self.changes.run, samples, labels)

    def rounds(self, run: Run, inner: Params, first: int, last: int) -> None:  # noqa: ARG002
        for round_ in range(first, last):
            self.round(inner, round_, {})

    def round(self, inner: Params, round_: int, fabricated: Mapping[int, Params]) -> None:
        """Train one round, in place; `fabricated` are the reports of clients who fabricate them."""
        common, scale, rule = self.engine.unpack(inner), self.run.report_scale, self.federated.rule
        asked = self.changes.present(round_)
        honest = np.flatnonzero(asked & (scale != 0))
        made = scale[honest].astype(np.float32)[:, None] * self.changes.of(inner, round_, honest)
        clients = np.concatenate((honest, np.array(list(fabricated), dtype=np.int64)))
        changes = np.concatenate((made, *(report[None] - common for report in fabricated.values())))
        order = np.argsort(clients, kind="stable")
        changes, taken = limited_changes(changes[order], rule, round_)
        self.refused.update(clients[order][~taken & changes.any(axis=1)].tolist())
        weight = self.federated.weight / self.federated.participation
        counted = np.zeros(len(weight), dtype=bool)
        counted[clients[order][taken]] = True
        counts = taken_weights(weight[asked], counted[asked], rule)
        inner[:] = self.engine.pack(self.combined(round_ + 1, common, changes[taken], counts))
