"""`ClientLabels`: the labels of a simulated job's clients, some derived when an offer tells the training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from truthfl.federation.participant.participant import LabelSource
from truthfl.job import DataJob
from truthfl.learning.asked_samples import in_asked_order
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.behaviours import TRUTHFUL, behaviour
from truthfl.learning.derived_labels import derived_labels
from truthfl.learning.federated import Federated
from truthfl.learning.label_sets import LabelSets
from truthfl.learning.local_training import samples_by_hand
from truthfl.learning.model import Labels
from truthfl.learning.partition import Partition
from truthfl.learning.profile import Profile
from truthfl.learning.several_labels import sets_given
from truthfl.ledger.job_terms import JobTerms
from truthfl.ledger.terms import Offer
from truthfl.mechanism.checks import IntArray
from truthfl.mechanism.observation import Evidence
from truthfl.mechanism.setting import Training


def has_audition(job: DataJob) -> bool:
    """Whether the job's contract pays by models that clients train alone."""
    return Evidence.SOLO_LOSS in job.contract.mechanism.needs


def in_labeling_order(job: DataJob, federated: Federated) -> Federated:
    """The federation with each client's samples in the order in which she is asked to label them.

    Without an audition all samples are labeled, and the order stays.
    """
    if not has_audition(job):
        return federated
    return Federated(
        federated.model,
        federated.data,
        in_asked_order(federated.partition, job.data.seed),
        federated.training,
        weight=federated.weight,
        participation=federated.participation,
        rule=federated.rule,
    )


def labels_of_asked(federated: Federated, rows: IntArray, kind: Behaviour, offer: Offer) -> Labels | LabelSets:
    """The labels that a client with these samples makes for an offer that asks for some of them.

    The draws are those of a federation of the clients asked, in which she has the position `offer.client.index`. The
    labels of a client do not depend on the others, so each of these has one sample here.

    rows  the positions in the data of the samples that she is asked to label
    """
    before, job = offer.client.index, offer.job
    partition = Partition(
        np.concatenate((np.zeros(before, dtype=np.int64), rows)), np.append(np.arange(before + 1), before + len(rows))
    )
    training = Training(job.rounds, job.local_steps, job.step_size)
    alone = Federated(federated.model, federated.data, partition, training)
    profile = Profile([TRUTHFUL] * before + [kind], 1)
    labels = profile.labels(alone, job.seed)
    sets = sets_given(alone, labels, profile.labeling_effort(partition.sizes), job.seed)
    own = alone.samples_of(before)
    return labels[own] if sets is None else sets.take(np.arange(own.start, own.stop))


@dataclass(eq=False)
class AskedLabels:
    """The labels of all clients of a job that asks them to label a part of their samples.

    federated   with each client's samples in the order in which she is asked to label them
    made        those made already, by the offer's hash
    """

    federated: Federated
    behaviours: Sequence[str | Behaviour]
    made: dict[str, Labels | LabelSets] = field(default_factory=dict)

    def source(self, client: int) -> LabelSource:
        """Returns this client's labels for an offer."""
        kind, rows = behaviour(self.behaviours[client]), self.federated.partition.rows_of(client)

        def labels(offer: Offer) -> Labels | LabelSets:
            if offer.hash not in self.made:
                self.made[offer.hash] = labels_of_asked(self.federated, rows[: offer.client.samples], kind, offer)
            return self.made[offer.hash]

        return labels


@dataclass(eq=False)
class ClientLabels:
    """The labels of all clients of a job that asks them to label all of their samples.

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
            return lambda offer: self._given(client, self._derived(client, offer.job), offer.job.seed)
        own = self.labels[self.federated.samples_of(client)]
        return lambda offer: self._given(client, own, offer.job.seed)

    def _given(self, client: int, labels: Labels, seed: int) -> Labels | LabelSets:
        """All labels that she gives to her samples, of which these are one each."""
        sets, rows = self.federated.data.sets, self.federated.partition.rows_of(client)
        if sets is None:
            return labels
        right = labels == self.federated.data.labels[rows]
        by_hand = samples_by_hand(behaviour(self.behaviours[client]), len(labels), client, seed)
        return sets.take(rows).with_singles(~(by_hand & right), labels)

    def _derived(self, client: int, job: JobTerms) -> Labels:
        """Her labels in a job with these terms."""
        key = (client, job.rounds, job.step_size, job.seed)
        if key not in self.derived:
            kind, own = behaviour(self.behaviours[client]), self.labels[self.federated.samples_of(client)]
            self.derived[key] = derived_labels(
                kind.unlabeled,
                self.federated.model,
                self.federated.data.features[self.federated.partition.rows_of(client)],
                own,
                samples_by_hand(kind, len(own), client, job.seed),
                rounds=job.rounds,
                step_size=job.step_size,
                seed=job.seed,
            )
        return self.derived[key]
