"""The participants of a simulated job, who behave as the job says, and their labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from flwr.app import Context, Error, Message, RecordDict

from truthfl.contracts.contract import Evidence
from truthfl.contracts.setting import IntArray
from truthfl.federation.masking.shares import SharedStreams
from truthfl.federation.operator.kept_jobs import kept_key
from truthfl.federation.participant.client_app import client_app
from truthfl.federation.participant.participant import LabelSource, Participant
from truthfl.files import without_waiting_for_disk
from truthfl.flower_patches import CLIENT_APP_FAILED, RUN_ID, OneRunGrid, set_message_id
from truthfl.job import DataJob
from truthfl.learning.data.federations import SimulatedFederation
from truthfl.learning.data.partition import Federated, Partition
from truthfl.learning.data.samples import LabelSets
from truthfl.learning.models.model import Labels
from truthfl.learning.people.behaviour import Behaviour
from truthfl.learning.people.behaviours import TRUTHFUL, behaviour
from truthfl.learning.people.labels import derived_labels, in_asked_order, sets_given
from truthfl.learning.people.profile import Profile
from truthfl.learning.training.local_training import samples_by_hand
from truthfl.ledger.canonical import digest
from truthfl.ledger.terms import JobTerms, Offer

LONGEST = 99


def folder_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Each client's name if it is valid and unique as a folder name, ignoring case; otherwise the client's index."""
    times = Counter(name.lower() for name in names)
    return tuple(
        name if _is_valid(name) and times[name.lower()] == 1 else f"_{client}" for client, name in enumerate(names)
    )


def _is_valid(name: str) -> bool:
    letters = name.replace("-", "").replace(" ", "")
    return name.isascii() and letters.isalnum() and name == name.strip() and len(name) <= LONGEST


def has_solo_models(job: DataJob) -> bool:
    """Whether the job's contract pays by models that clients train alone."""
    return Evidence.SOLO_LOSS in job.contract.load().needs


def in_labeling_order(job: DataJob, federated: Federated) -> Federated:
    """The federation with each client's samples in the order in which they are asked to label them.

    Without an audition all samples are labeled, and the order stays.
    """
    if not has_solo_models(job):
        return federated
    return replace(federated, partition=in_asked_order(federated.partition, job.data.seed))


def labels_of_asked(federated: Federated, rows: IntArray, kind: Behaviour, offer: Offer) -> Labels | LabelSets:
    """The labels that a client with these samples makes for an offer that asks for some of them.

    The draws are those of a federation of the clients asked, in which this client has position `offer.client.index`.
    A client's labels do not depend on the others, so each of the others has one sample here.

    rows  the positions in the data of the samples that this client is asked to label
    """
    before, job = offer.client.index, offer.job
    partition = Partition(
        np.concatenate((np.zeros(before, dtype=np.int64), rows)), np.append(np.arange(before + 1), before + len(rows))
    )
    alone = Federated(federated.model, federated.data, partition, job.training)
    profile = Profile([TRUTHFUL] * before + [kind], 1)
    labels = profile.labels(alone, job.seed)
    sets = sets_given(alone, labels, profile.labeling_effort(partition.sizes), job.seed)
    own = alone.samples_of(before)
    return labels[own] if sets is None else sets.take(np.arange(own.start, own.stop))


@dataclass(eq=False)
class AskedLabels:
    """The labels of all clients of a job that asks them to label a part of their samples.

    federated   with each client's samples in the order in which they are asked to label them
    made        the labels made already, by the offer's hash
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
    derived  the labels derived already, by client and training parameters
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
        """All labels that the client gives to their samples; `labels` has one for each."""
        sets, rows = self.federated.data.sets, self.federated.partition.rows_of(client)
        if sets is None:
            return labels
        right = labels == self.federated.data.labels[rows]
        by_hand = samples_by_hand(behaviour(self.behaviours[client]), len(labels), client, seed)
        return sets.take(rows).with_singles(~(by_hand & right), labels)

    def _derived(self, client: int, job: JobTerms) -> Labels:
        """The client's labels in a job with these terms."""
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


SERVER = 1
App = Callable[[Message, Context], Message]


class InProcessGrid(OneRunGrid):
    """A grid with one client app and a context for each node.

    node_config  by node id: the node's config
    """

    def __init__(self, app: App, node_config: Mapping[int, Mapping[str, str | int | float | bool]]) -> None:
        super().__init__(SERVER)
        self.app = app
        self.contexts = {
            node: Context(run_id=RUN_ID, node_id=node, node_config=dict(config), state=RecordDict(), run_config={})
            for node, config in node_config.items()
        }
        self.replies: dict[str, Message] = {}
        self.message_count = 0

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            self.message_count += 1
            ids.append(str(self.message_count))
            self.replies[ids[-1]] = self._reply_to(message, ids[-1])
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [self.replies.pop(number) for number in message_ids if number in self.replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:  # noqa: ARG002
        return self.pull_messages(self.push_messages(messages))

    def _reply_to(self, message: Message, number: str) -> Message:
        node = message.metadata.dst_node_id
        set_message_id(message, number)
        try:
            with without_waiting_for_disk():
                return self.app(message, self.contexts[node])
        except Exception as error:  # any error of a client becomes an error reply, as in a deployment
            return Message(Error(CLIENT_APP_FAILED, str(error)), reply_to=message)


FIRST_NODE = 1000
MOST_FEATURES = 2**28  # bytes: if all clients' samples take more, each client's are gathered whenever they are used


def drawn_labels(job: DataJob, federation: SimulatedFederation, seed: int) -> Labels:
    """The labels of all clients' samples, before some are derived."""
    return Profile(job.clients.behaviour, 1).labels_before_derived(federation.federated, seed)


def simulated_participants(
    job: DataJob, federation: SimulatedFederation, folder: Path, labels: Labels | None = None
) -> dict[int, Participant]:
    """By node id: the job's clients, who accept any offer.

    With an audition, each client holds their samples in the order in which they are asked to label them. They label
    those that their offer asks for.

    labels  of all clients' samples, if there is no audition; those that a behaviour derives are derived when the offer
            tells the step size
    """
    federated, all_labels = _labeling(job, federation, labels)
    homes = _homes(job, folder)
    masks = SharedStreams()
    with without_waiting_for_disk():
        people = [_participant(job, federated, i, home, all_labels) for i, home in enumerate(homes)]
    return {FIRST_NODE + i: replace(own, mask_stream=masks.mask_stream) for i, own in enumerate(people)}


def _homes(job: DataJob, folder: Path) -> list[Path]:
    """The clients' folders."""
    return [folder / "participants" / own for own in folder_names(job.clients.name)]


def _labeling(
    job: DataJob, federation: SimulatedFederation, labels: Labels | None
) -> tuple[Federated, ClientLabels | AskedLabels]:
    """The federation with each client's samples in their own order, and the sources of labels."""
    federated, behaviours = in_labeling_order(job, federation.federated), job.clients.behaviour
    if labels is None or has_solo_models(job):
        return federated, AskedLabels(federated, behaviours)
    return federated, ClientLabels(federated, behaviours, labels)


def grid_of(participants: Mapping[int, Participant]) -> InProcessGrid:
    """Return a grid with these participants, given by node id."""

    def participant_of(context: Context) -> Participant:
        return participants[context.node_id]

    return InProcessGrid(client_app(participant_of), {node: {} for node in participants})


def participant_builder(job: DataJob, folder: Path, seed: int) -> Callable[[int], Participant]:
    """A function that builds the client of a number from the job alone, also in another process."""
    folder = folder.resolve()
    key = digest({"job": job.document(), "seed": seed, "folder": str(folder)})
    return partial(_built_participant, key, job, folder, seed)


_BUILT: dict[str, tuple[Federated, ClientLabels | AskedLabels, list[Path]]] = {}


def _built_participant(key: str, job: DataJob, folder: Path, seed: int, client: int) -> Participant:
    """A client; data, labels and folders of all are cached by the key."""
    if key not in _BUILT:
        federation = job.simulated_federation()
        drawn = None if has_solo_models(job) else drawn_labels(job, federation, seed)
        homes = _homes(job, folder)
        _BUILT[key] = (*_labeling(job, federation, drawn), homes)
    federated, labels, homes = _BUILT[key]
    return _participant(job, federated, client, homes[client], labels)


def _participant(
    job: DataJob, federated: Federated, client: int, home: Path, labels: ClientLabels | AskedLabels
) -> Participant:
    rows, features = federated.partition.rows_of(client), federated.data.features
    held = len(federated.partition.rows) * features[0].nbytes
    return Participant(
        name=job.clients.name[client],
        samples=len(rows),
        samples_for=lambda offer: features[rows[: offer.client.samples]],
        keeps_features=held <= MOST_FEATURES,
        image_shape=features.shape[1:] if job.task.is_pictures else None,
        task=job.task,
        labels=labels.source(client),
        key=kept_key(home / "key"),
        folder=home,
        decide=lambda offer: True,  # noqa: ARG005
        behaviour=job.clients.behaviour[client],
        sample_cost=None if job.server.cost_distribution is None else float(job.clients.sample_cost[client]),
    )
