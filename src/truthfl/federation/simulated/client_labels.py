"""`ClientLabels`: the labels of a simulated job's clients, some of which are derived when an offer tells the training.

Imports `participant`, `learning` and `ledger.terms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from truthfl.federation.participant.participant import LabelSource
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.behaviours import behaviour
from truthfl.learning.derived_labels import derived_labels
from truthfl.learning.federated import Federated
from truthfl.learning.local_training import samples_by_hand
from truthfl.learning.model import Labels
from truthfl.ledger.terms import JobTerms


@dataclass(eq=False)
class ClientLabels:
    """The labels of all clients.

    labels   of all clients' samples before training; those to be derived are not read
    derived  those derived already, by client and training parameters
    """

    federated: Federated
    behaviours: Sequence[str | Behaviour]
    labels: Labels
    derived: dict[tuple[int, int, float, int], Labels] = field(default_factory=dict)

    def source(self, client: int) -> LabelSource:
        """Returns this client's labels for an offer."""
        kind = behaviour(self.behaviours[client])
        if kind.unlabeled.is_derived and kind.labeling_effort < 1:
            return lambda offer: self._derived(client, offer.job)
        own = self.labels[self.federated.samples_of(client)]
        return lambda _: own

    def _derived(self, client: int, job: JobTerms) -> Labels:
        """Her labels in a job with these terms."""
        key = (client, job.rounds, job.step_size, job.seed)
        if key not in self.derived:
            kind, own = behaviour(self.behaviours[client]), self.labels[self.federated.samples_of(client)]
            self.derived[key] = derived_labels(
                kind.unlabeled,
                self.federated.model,
                self.federated.data.images[self.federated.partition.rows_of(client)],
                own,
                samples_by_hand(kind, len(own), client, job.seed),
                rounds=job.rounds,
                step_size=job.step_size,
                seed=job.seed,
            )
        return self.derived[key]
