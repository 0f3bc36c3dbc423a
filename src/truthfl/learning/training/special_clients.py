"""Special clients in the fast trainer: those who fabricate reports, use labels predicted by the common model, or scale
their reports differently from round to round.

Arrays of (e, D, γ) do not describe them. A run with such clients is trained round by round: the engine computes all
other clients, this module adds the special ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.data.partition import Federated
from truthfl.learning.models.model import Params
from truthfl.learning.people.behaviour import Behaviour
from truthfl.learning.training.local_training import report_noise, takes_part, updated_memory
from truthfl.learning.training.run import Run, SpecialClients, model_of_client

if TYPE_CHECKING:
    from truthfl.learning.training.rounds import Engine, SingleReports


class SpecialClientRounds:
    """Trains the rounds of a run with special clients.

    received       the models that each fabricator remembers
    refused_reports  how many reports of each client who fabricates or rescales were equal to the model she received
    """

    def __init__(self, federated: Federated, run: Run, special: SpecialClients) -> None:
        self.federated, self.run, self.special = federated, run, special
        self.partition = run.partition or federated.partition
        self.predicted_features = federated.data.features[self.partition.rows[special.predicted]]
        self.received: dict[int, list[Params]] = {client: [] for client in special.fabricators}
        rescaling = [client for _, clients in special.rescaled for client in clients.tolist()]
        self.refused_reports = dict.fromkeys([*special.fabricators, *rescaling], 0)

    def rounds(self, engine: Engine, inner: Params, first: int, last: int, single: SingleReports | None = None) -> None:
        """Train rounds first … last − 1, like `Engine.rounds`; `single`: the engine itself if it combines reports."""
        for t in range(first, last):
            common = engine.unpack(inner)
            several = self.special.several
            if several is not None:
                engine.relabel(self.run, several.samples, several.in_round(self.run.seed, t))
            if len(self.predicted_features):
                labels = self.federated.model.predict(common, self.predicted_features)
                engine.relabel(self.run, self.special.predicted, labels)
            for behaviour, clients in self.special.rescaled:
                self._rescale(engine, behaviour, clients, t)
            reports = self._fabricated_reports(common, t)
            if single is not None:
                single.round(inner, t, reports)
                continue
            engine.rounds(self.run, inner, t, t + 1)
            if reports:
                inner[:] = engine.pack(engine.unpack(inner) + self._update(common, reports))

    def _rescale(self, engine: Engine, behaviour: Behaviour, clients: NDArray[np.int64], round_: int) -> None:
        """Set these clients' report scale of the round; a scale of 0 makes their reports empty."""
        scale, q = behaviour.scale_in_round(round_, self.federated.training.rounds), self.federated.participation
        engine.rescale(self.run, clients, scale)
        if scale == 0:
            for client in clients.tolist():
                self.refused_reports[client] += takes_part(self.run.seed, client, round_, q[client])

    def _fabricated_reports(self, common: Params, round_: int) -> dict[int, Params]:
        """The reports of the fabricators who take part, by client."""
        reports, q = dict[int, Params](), self.federated.participation
        for client, behaviour in self.special.fabricators.items():
            if not takes_part(self.run.seed, client, round_, q[client]):
                continue
            self.received[client] = updated_memory(behaviour, self.received[client], common)
            report = behaviour.report(
                self.received[client],
                partial(report_noise, self.run.seed, client, round_),
                partial(model_of_client, self.federated, self.run, common, client, round_),
                round_=round_,
                rounds=self.federated.training.rounds,
            )
            reports[client] = report
            self.refused_reports[client] += np.array_equal(report, common)
        return reports

    def _update(self, common: Params, reports: Mapping[int, Params]) -> Params:
        """The sum of these weighted reports."""
        change, weight, q = np.zeros_like(common), self.federated.weight, self.federated.participation
        for client, report in reports.items():
            change += np.float32(weight[client] / q[client]) * (report - common)
        return change
