"""The changes that single clients would report in a round, computed by an engine.

Engines add up clients as they go. Here each client is a chunk of her own, whose share of the sum is 1, so that the
model after her chunk is her local model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.draws import Purpose, bits_at, key, uniform
from truthfl.learning.engines import Engine, Run
from truthfl.learning.federated import Federated
from truthfl.learning.model import Params


class ClientChanges:
    """The changes of the clients of one run, before the run's report scales."""

    def __init__(self, federated: Federated, engine: Engine, run: Run) -> None:
        self.federated, self.engine = federated, engine
        self.run = replace(run, report_scale=federated.participation / federated.weight)

    def of(self, inner: Params, round_: int, clients: NDArray[np.int64]) -> NDArray[np.float32]:
        """The honest changes of these clients, (clients, parameters); `inner` is the model in the engine's layout."""
        common = self.engine.unpack(inner)
        changes = np.empty((len(clients), len(common)), dtype=np.float32)
        for row, client in enumerate(clients.tolist()):
            local = inner.copy()
            update = self.engine.chunk_update(self.run, inner, round_, client, client + 1)
            self.engine.combine(self.run, local, [update])
            changes[row] = self.engine.unpack(local) - common
        return changes

    def present(self, round_: int) -> NDArray[np.bool_]:
        """Which clients take part in this round."""
        q = self.federated.participation
        return np.asarray(uniform(bits_at(key(self.run.seed, Purpose.AVAILABILITY, np.arange(len(q)), round_), 0)) < q)
