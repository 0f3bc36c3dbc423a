"""A whole job in one process: the protocol as it is deployed, with simulated clients on an in-process grid.

Looks at `server`, `participant`, `client_app`, `grid`, and at `learning` for what would have been had a liar been
honest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.federation.participant.client_app import client_app
from truthfl.federation.participant.participant import Participant
from truthfl.federation.protocol.audit import test_loss
from truthfl.federation.protocol.operator_folder import fixed_draws, kept_key
from truthfl.federation.protocol.server import Operator, Watch, conduct, job_name
from truthfl.federation.simulated.flower_simulation import in_simulation
from truthfl.federation.simulated.grid import InProcessGrid
from truthfl.job import DataJob
from truthfl.learning.behaviours import BEHAVIOURS, error_rates, play
from truthfl.learning.federations import SimulatedFederation, with_training
from truthfl.learning.labels import assigned_labels
from truthfl.learning.model import Labels
from truthfl.learning.pilot_design import PilotDesign
from truthfl.learning.training import train
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import digest
from truthfl.ledger.documents import Offer
from truthfl.ledger.job_view import JobView
from truthfl.ledger.settlement import read_settlement
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.setting import Training

FIRST_NODE = 1000
RESULTS = "results.json"


@dataclass(frozen=True, eq=False)
class RunOutcome:
    """A job that was run: what the book says of it, and what only a simulation knows. Money is the job's.

    behaviour  what each client did
    pay, cost  of each
    refused    of whom no report was taken: she is not paid
    honest     what she would have been left with had she alone been honest, of those who are not; NaN for the others
    """

    found: JobView
    behaviour: tuple[str, ...]
    refused: NDArray[np.bool_]
    pay: FloatArray
    cost: FloatArray
    honest: FloatArray

    @property
    def payoff(self) -> FloatArray:
        return self.pay - self.cost

    @property
    def test_loss(self) -> float:
        assert self.found.test is not None
        return float(self.found.test.document["loss"])


def run_job(
    job: DataJob,
    folder: Path,
    *,
    seed: int = 0,
    ledger: str | None = None,
    design: PilotDesign | None = None,
    watch: Watch = lambda *_: None,
    in_flower: bool = False,
) -> RunOutcome:
    """Plan, offer, label, train, test, pay; and once more for each liar, with her alone honest.

    A job that was interrupted in this folder goes on where it was. With `in_flower` the nodes are those of Flower's
    simulation, in processes of their own.
    """
    scene = job.scene()
    with open_ledger(ledger or folder / "ledger.db") as book:
        draws = fixed_draws(seed)
        operator = Operator(book, folder, kept_key(folder / "operator"), draws.secret, draws.seed)
        name = job_name(book, job, seed, told=lambda name: _told_of(folder, name))

        def serve(grid: Grid) -> JobView:
            return conduct(grid, job, name, operator, lambda some, side: some.plan(side, design), watch)

        if in_flower:
            found = in_simulation(len(job.clients), partial(_anew, job, folder.resolve(), seed), serve)
        else:
            labels = simulated_labels(scene, job.clients.behaviour, seed)
            found = serve(grid_of(simulated(job, scene, folder, labels)))
    return _outcome(job, scene, found, operator)


def _told_of(folder: Path, name: str) -> bool:
    """Whether the folder's results are this job's: they are written last."""
    try:
        return bool(json.loads((folder / RESULTS).read_text(encoding="utf-8"))["job"] == name)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def simulated(job: DataJob, scene: SimulatedFederation, folder: Path, labels: Labels) -> dict[int, Participant]:
    """Every client of the job, by the number of her node; they accept any offer, and their labels are made."""
    return {FIRST_NODE + i: _participant(job, scene, i, folder, labels) for i in range(len(job.clients))}


def grid_of(participants: Mapping[int, Participant]) -> InProcessGrid:
    """A grid on which each of them has a node."""

    def whose(context: Context) -> Participant:
        return participants[context.node_id]

    return InProcessGrid(client_app(whose), {node: {} for node in participants})


_ANEW: dict[str, tuple[SimulatedFederation, Labels]] = {}


def _anew(job: DataJob, folder: Path, seed: int, client: int) -> Participant:
    """A client in a process that has nothing but the job."""
    known = digest({"job": job.document(), "seed": seed})
    if known not in _ANEW:
        scene = job.scene()
        _ANEW[known] = scene, simulated_labels(scene, job.clients.behaviour, seed)
    scene, labels = _ANEW[known]
    return _participant(job, scene, client, folder, labels)


def _participant(job: DataJob, scene: SimulatedFederation, client: int, folder: Path, labels: Labels) -> Participant:
    own = labels[scene.federated.samples_of(client)]
    desk = folder / "participants" / _folder_name(job, client)
    rows = scene.federated.partition.rows_of(client)
    return Participant(
        name=job.clients.name[client],
        samples=len(rows),
        images=scene.federated.data.images[rows],
        labels=lambda _: own,
        key=kept_key(desk / "key"),
        folder=desk,
        decide=lambda offer: True,  # noqa: ARG005
        behaviour=job.clients.behaviour[client],
    )


def _folder_name(job: DataJob, client: int) -> str:
    """Her name where it can be a folder's and is nobody else's in other letters, her number otherwise."""
    name, alike = job.clients.name[client], [one.lower() for one in job.clients.name]
    plain = name.isascii() and name.replace("-", "").replace(" ", "").isalnum() and name == name.strip()
    return name if plain and len(name) < 100 and alike.count(name.lower()) == 1 else f"_{client}"


def simulated_labels(scene: SimulatedFederation, names: tuple[str, ...], seed: int) -> Labels:
    federated = scene.federated
    return assigned_labels(
        federated.data.labels,
        federated.partition,
        labeling_effort=play(names, np.ones(len(names), dtype=int)).labeling_effort,
        error_rate=error_rates(names),
        classes=len(federated.data.classes),
        seed=seed,
    )


def _outcome(job: DataJob, scene: SimulatedFederation, found: JobView, operator: Operator) -> RunOutcome:
    offers, names = found.contract, job.clients.behaviour
    if len(offers) != len(names):
        raise InputError("a simulated job has all of its clients; this book has another number of offers.")
    settled = [read_settlement(found.settlements[offer.client]) for offer in offers]
    honest = np.full(len(names), np.nan)
    for client, name in enumerate(names):
        if not BEHAVIOURS[name].truthful:
            instead = (*names[:client], "truthful", *names[client + 1 :])
            honest[client] = _payoff_if(job, scene, offers, instead, operator)[client]
    return RunOutcome(
        found,
        names,
        np.array([one.delivered == 0 for one in settled]),
        np.array([one.pay / job.server.minor_units for one in settled]),
        _cost(offers, names),
        honest,
    )


def _cost(offers: list[Offer], names: tuple[str, ...]) -> FloatArray:
    """What each really spends: her labeling, and T batches of the size she uses; nothing if she does nothing."""
    played = play(names, np.array([offer.batch_size for offer in offers]))
    labeling = np.array([offer.terms.labeling_cost for offer in offers]) * played.labeling_effort
    computing = np.array([offer.rounds * offer.sample_cost for offer in offers]) * played.batch_size
    return labeling + np.where(played.report_scale == 0, 0.0, computing)


def _payoff_if(
    job: DataJob, scene: SimulatedFederation, offers: list[Offer], names: tuple[str, ...], operator: Operator
) -> FloatArray:
    """Everybody's payoff with these behaviours, by the fast trainer, with the same draws."""
    training = Training(offers[0].rounds, offers[0].local_steps, offers[0].step_size)
    federated = with_training(scene.federated, training)
    played = play(names, np.array([offer.batch_size for offer in offers]))
    done = train(federated, played, simulated_labels(scene, names, operator.seed), operator.seed)
    loss = test_loss(federated.model, done.params[0], scene.test, job.server.test_samples, operator.secret)
    taken = np.where(played.report_scale == 0, 0, offers[0].rounds).tolist()
    pay = [offer.terms.pay(loss, rounds, offer.rounds) for offer, rounds in zip(offers, taken, strict=True)]
    return np.array(pay) / job.server.minor_units - _cost(offers, names)
