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
from truthfl.federation.protocol.rounds import asked_in
from truthfl.federation.protocol.server import Operator, Watch, conduct, job_name
from truthfl.federation.simulated.flower_simulation import in_simulation
from truthfl.federation.simulated.grid import InProcessGrid
from truthfl.job import DataJob
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.behaviours import TRUTHFUL, behaviour
from truthfl.learning.federations import SimulatedFederation, with_training
from truthfl.learning.model import Labels
from truthfl.learning.pilot_design import PilotDesign
from truthfl.learning.profile import Profile
from truthfl.learning.training import train
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import digest
from truthfl.ledger.job_view import JobView
from truthfl.ledger.settlement import read_settlement
from truthfl.ledger.terms import Agreement
from truthfl.mechanism.checks import FloatArray, IntArray
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
    def agreed(self) -> Agreement:
        assert self.found.agreement is not None
        return self.found.agreement

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
    scene = job.simulated_federation()
    with open_ledger(ledger or folder / "ledger.db") as book:
        draws = fixed_draws(seed)
        operator = Operator(book, folder, kept_key(folder / "operator"), draws.secret, draws.seed)
        name = job_name(book, job, seed, told=lambda name: _told_of(folder, name))

        def serve(grid: Grid) -> JobView:
            return conduct(grid, job, name, operator, lambda some, side: some.plan(side, design), watch)

        if in_flower:
            found = in_simulation(len(job.clients), partial(_anew, job, folder.resolve(), seed), serve)
        else:
            labels = Profile(job.clients.behaviour, 1).labels(scene.federated, seed)
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
        scene = job.simulated_federation()
        _ANEW[known] = scene, Profile(job.clients.behaviour, 1).labels(scene.federated, seed)
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


def _outcome(job: DataJob, scene: SimulatedFederation, found: JobView, operator: Operator) -> RunOutcome:
    agreed, names = found.agreement, job.clients.behaviour
    if agreed is None or len(agreed.offers) != len(names):
        raise InputError("a simulated job has all of its clients; this ledger has another number of offers.")
    settled = [read_settlement(found.settlements[offer.client.name]) for offer in agreed.offers]
    honest = np.full(len(names), np.nan)
    for client, name in enumerate(names):
        if not behaviour(name).truthful:
            instead = (*names[:client], TRUTHFUL, *names[client + 1 :])
            honest[client] = _payoff_if(job, scene, agreed, instead, operator)[client]
    return RunOutcome(
        found,
        tuple(behaviour(name).name for name in names),
        np.array([one.delivered == 0 for one in settled]),
        np.array([one.pay / job.server.minor_units for one in settled]),
        _cost(agreed, names),
        honest,
    )


def _cost(agreed: Agreement, names: tuple[str | Behaviour, ...]) -> FloatArray:
    """What each really spends over all rounds."""
    return np.array(
        [
            behaviour(name).cost(offer.client.labeling_cost, offer.batch_price, offer.client.batch_size)
            for offer, name in zip(agreed.offers, names, strict=True)
        ]
    )


def _payoff_if(
    job: DataJob,
    scene: SimulatedFederation,
    agreed: Agreement,
    names: tuple[str | Behaviour, ...],
    operator: Operator,
) -> FloatArray:
    """Everybody's payoff with these behaviours, by the fast trainer, with the same draws."""
    terms = agreed.terms
    training = Training(terms.rounds, terms.local_steps, terms.step_size)
    federated = with_training(scene.federated, training)
    profile = Profile(names, [offer.client.batch_size for offer in agreed.offers])
    done = train(federated, profile, operator.seed)
    loss = test_loss(federated.model, done.params[0], scene.test, job.server.test_samples, operator.secret)
    asked = _rounds_asked(agreed)
    taken = np.where(profile.reports_nothing, 0, asked)
    for client, empty in done.empty_reports[0].items():
        taken[client] -= empty
    rounds = zip(agreed.offers, taken.tolist(), asked.tolist(), strict=True)
    pay = [offer.pay(loss, delivered, of) for offer, delivered, of in rounds]
    return np.array(pay) / job.server.minor_units - _cost(agreed, names)


def _rounds_asked(agreed: Agreement) -> IntArray:
    """In how many rounds each client is asked for a report."""
    asked = np.zeros(len(agreed.offers), dtype=np.int64)
    for round_ in range(agreed.terms.rounds):
        for offer in asked_in(agreed, round_):
            asked[offer.client.index] += 1
    return asked
