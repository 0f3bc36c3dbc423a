"""The participants of a simulated job: its clients, who behave as the job says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from flwr.app import Context

from truthfl.federation.participant.client_app import client_app
from truthfl.federation.participant.participant import Participant
from truthfl.federation.protocol.masking import SharedStreams
from truthfl.federation.protocol.operator_folder import kept_key
from truthfl.federation.simulated.client_labels import AskedLabels, ClientLabels, has_audition, in_labeling_order
from truthfl.federation.simulated.folder_names import folder_names
from truthfl.federation.simulated.grid import InProcessGrid
from truthfl.files import without_waiting_for_disk
from truthfl.job import DataJob
from truthfl.learning.federated import Federated
from truthfl.learning.federations import SimulatedFederation
from truthfl.learning.model import Labels
from truthfl.learning.profile import Profile
from truthfl.ledger.canonical import digest

FIRST_NODE = 1000
MOST_FEATURES = 2**28  # bytes: if all clients' samples take more, a client's are gathered whenever she uses them


def drawn_labels(job: DataJob, federation: SimulatedFederation, seed: int) -> Labels:
    """The labels of all clients' samples, before some are derived."""
    return Profile(job.clients.behaviour, 1).labels_before_derived(federation.federated, seed)


def simulated_participants(
    job: DataJob, federation: SimulatedFederation, folder: Path, labels: Labels | None = None
) -> dict[int, Participant]:
    """By node id: the job's clients, who accept any offer.

    With an audition, each holds her samples in the order in which she is asked to label them, and labels those that her
    offer asks for.

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
    """The federation with each client's samples in her own order, and the sources of labels."""
    federated, behaviours = in_labeling_order(job, federation.federated), job.clients.behaviour
    if labels is None or has_audition(job):
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
        drawn = None if has_audition(job) else drawn_labels(job, federation, seed)
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
