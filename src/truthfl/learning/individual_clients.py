"""Clients whom arrays of (e, D, γ) do not describe, in the fast trainer: who fabricates, who labels by the model.

A run with such clients goes round by round: the engine trains everybody else as ever. Imports `behaviour`, `federated`,
`local_training`; knows an engine by what it can do only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.behaviour import Behaviour
from truthfl.learning.federated import Federated
from truthfl.learning.local_training import local_model, remembered, report_noise, takes_part
from truthfl.learning.model import Params

if TYPE_CHECKING:
    from truthfl.learning.engines import Engine, Run


@dataclass(frozen=True, eq=False)
class Individuals:
    """Of one run.

    fabricators  by their place among the clients; in the run's arrays their report_scale is 0
    predicted    which of the run's samples the common model labels anew before every round
    """

    fabricators: Mapping[int, Behaviour]
    predicted: NDArray[np.int64]


class IndividualRounds:
    """The rounds of one such run, with what its clients remember.

    empty_reports  how many reports of each fabricator were the model as it came
    """

    def __init__(self, federated: Federated, run: Run, individuals: Individuals) -> None:
        self.federated, self.run, self.individuals = federated, run, individuals
        self.partition = run.partition or federated.partition
        self.seen = federated.data.images[self.partition.rows[individuals.predicted]]
        self.received: dict[int, list[Params]] = {client: [] for client in individuals.fabricators}
        self.empty_reports = dict.fromkeys(individuals.fabricators, 0)

    def rounds(self, by: Engine, inner: Params, first: int, last: int) -> None:
        """As an engine's `rounds`."""
        for t in range(first, last):
            common = by.params(inner)
            if len(self.seen):
                labels = self.federated.model.predict(common, self.seen)
                by.relabel(self.run, self.individuals.predicted, labels)
            by.rounds(self.run, inner, t, t + 1)
            if self.individuals.fabricators:
                inner[:] = by.start(by.params(inner) + self._fabricated(common, t))

    def _fabricated(self, common: Params, round_: int) -> Params:
        """What the fabricators together add to the model."""
        change, weight, q = np.zeros_like(common), self.federated.weight, self.federated.participation
        for client, behaviour in self.individuals.fabricators.items():
            if not takes_part(self.run.seed, client, round_, q[client]):
                continue
            self.received[client] = remembered(behaviour, self.received[client], common)
            report = behaviour.report(
                self.received[client],
                partial(report_noise, self.run.seed, client, round_),
                partial(self._honest, common, client, round_),
            )
            self.empty_reports[client] += np.array_equal(report, common)
            change += np.float32(weight[client] / q[client]) * (report - common)
        return change

    def _honest(self, common: Params, client: int, round_: int) -> Params:
        own = slice(int(self.partition.starts[client]), int(self.partition.starts[client + 1]))
        return local_model(
            self.federated.model,
            common,
            self.federated.data.images[self.partition.rows[own]],
            self.run.labels[own],
            client=client,
            round_=round_,
            batch_size=int(self.run.batch_size[client]),
            local_steps=self.federated.training.local_steps,
            step_size=self.run.step_size,
            seed=self.run.seed,
        )
