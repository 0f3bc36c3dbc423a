"""Run a whole job in one process: the deployed protocol with simulated clients on an in-process grid.

Imports `client_labels`, `flower_simulation`, `grid`, the protocol (`audit`, `operator_folder`, `rounds`, `server`),
`client_app`, `participant`, `job`, `learning`, the ledger, the mechanism and Flower.
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
from truthfl.federation.protocol.rounds import offers_in_round
from truthfl.federation.protocol.server import ActivityProgress, Operator, conduct_job, job_name
from truthfl.federation.simulated.client_labels import ClientLabels
from truthfl.federation.simulated.flower_simulation import run_in_simulation
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
    """A finished simulated job. Money is in the job's currency; arrays have one value per client.

    view              the ledger's entries of the job
    behaviour         the name of each client's behaviour
    refused           whether none of her reports was taken
    pay, cost         what she is paid, and what her work really costs her
    payoff_if_honest  her payoff if she alone had been honest instead; NaN for honest clients
    """

    view: JobView
    behaviour: tuple[str, ...]
    refused: NDArray[np.bool_]
    pay: FloatArray
    cost: FloatArray
    payoff_if_honest: FloatArray

    @property
    def agreement(self) -> Agreement:
        assert self.view.agreement is not None
        return self.view.agreement

    @property
    def payoff(self) -> FloatArray:
        return self.pay - self.cost

    @property
    def test_loss(self) -> float:
        assert self.view.test is not None
        return float(self.view.test.document["loss"])


def run_job(
    job: DataJob,
    folder: Path,
    *,
    seed: int = 0,
    ledger: str | None = None,
    design: PilotDesign | None = None,
    progress: ActivityProgress = lambda *_: None,
    in_flower: bool = False,
) -> RunOutcome:
    """Run a job: plan, offer, label, train, test, pay. Then train once more for each liar, with her alone honest.

    An interrupted job in this folder is continued.

    ledger     a file or the address of a database; ledger.db in the folder if None
    design     of the pilot; the default if None
    in_flower  whether the nodes are those of Flower's simulation, in other processes
    """
    federation = job.simulated_federation()
    with open_ledger(ledger or folder / "ledger.db") as opened_ledger:
        draws = fixed_draws(seed)
        operator = Operator(opened_ledger, folder, kept_key(folder / "operator"), draws.secret, draws.seed)
        name = job_name(opened_ledger, job, seed, is_published=lambda name: _has_results(folder, name))

        def serve(grid: Grid) -> JobView:
            return conduct_job(grid, job, name, operator, lambda job, side: job.plan(side, design), progress)

        if in_flower:
            participant_at = partial(_rebuilt_participant, job, folder.resolve(), seed)
            view = run_in_simulation(len(job.clients), participant_at, serve)
        else:
            labels = Profile(job.clients.behaviour, 1).labels_before_derived(federation.federated, seed)
            view = serve(grid_of(simulated_participants(job, federation, folder, labels)))
    return _outcome(job, federation, view, operator)


def _has_results(folder: Path, name: str) -> bool:
    """Whether results.json in the folder, which is written last, is of this job."""
    try:
        return bool(json.loads((folder / RESULTS).read_text(encoding="utf-8"))["job"] == name)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def simulated_participants(
    job: DataJob, federation: SimulatedFederation, folder: Path, labels: Labels
) -> dict[int, Participant]:
    """By node id: the job's clients, who accept any offer.

    labels  of all clients' samples; those that a behaviour derives are derived when the offer tells the step size
    """
    all_labels = ClientLabels(federation.federated, job.clients.behaviour, labels)
    return {FIRST_NODE + i: _participant(job, federation, i, folder, all_labels) for i in range(len(job.clients))}


def grid_of(participants: Mapping[int, Participant]) -> InProcessGrid:
    """Return a grid with these participants, given by node id."""

    def participant_of(context: Context) -> Participant:
        return participants[context.node_id]

    return InProcessGrid(client_app(participant_of), {node: {} for node in participants})


_REBUILT: dict[str, tuple[SimulatedFederation, ClientLabels]] = {}


def _rebuilt_participant(job: DataJob, folder: Path, seed: int, client: int) -> Participant:
    """Build a client from the job alone, in another process; data and labels are cached."""
    cache_key = digest({"job": job.document(), "seed": seed})
    if cache_key not in _REBUILT:
        federation, behaviours = job.simulated_federation(), job.clients.behaviour
        drawn = Profile(behaviours, 1).labels_before_derived(federation.federated, seed)
        _REBUILT[cache_key] = federation, ClientLabels(federation.federated, behaviours, drawn)
    federation, labels = _REBUILT[cache_key]
    return _participant(job, federation, client, folder, labels)


def _participant(
    job: DataJob, federation: SimulatedFederation, client: int, folder: Path, labels: ClientLabels
) -> Participant:
    home = folder / "participants" / _folder_name(job, client)
    rows = federation.federated.partition.rows_of(client)
    return Participant(
        name=job.clients.name[client],
        samples=len(rows),
        images=federation.federated.data.images[rows],
        labels=labels.source(client),
        key=kept_key(home / "key"),
        folder=home,
        decide=lambda offer: True,  # noqa: ARG005
        behaviour=job.clients.behaviour[client],
    )


def _folder_name(job: DataJob, client: int) -> str:
    """Her name if it is valid and unique as a folder name, ignoring case; otherwise her index."""
    name, lower_names = job.clients.name[client], [name.lower() for name in job.clients.name]
    is_valid = name.isascii() and name.replace("-", "").replace(" ", "").isalnum() and name == name.strip()
    return name if is_valid and len(name) < 100 and lower_names.count(name.lower()) == 1 else f"_{client}"


def _outcome(job: DataJob, federation: SimulatedFederation, view: JobView, operator: Operator) -> RunOutcome:
    agreement, behaviours = view.agreement, job.clients.behaviour
    if agreement is None or len(agreement.offers) != len(behaviours):
        raise InputError("a simulated job has all of its clients; this ledger has another number of offers.")
    settlements = [read_settlement(view.settlements[offer.client.name]) for offer in agreement.offers]
    payoff_if_honest = np.full(len(behaviours), np.nan)
    for client, name in enumerate(behaviours):
        if not behaviour(name).truthful:
            one_honest = (*behaviours[:client], TRUTHFUL, *behaviours[client + 1 :])
            payoff_if_honest[client] = _simulated_payoff(job, federation, agreement, one_honest, operator)[client]
    return RunOutcome(
        view,
        tuple(behaviour(name).name for name in behaviours),
        np.array([settlement.delivered == 0 for settlement in settlements]),
        np.array([settlement.pay / job.server.minor_units for settlement in settlements]),
        _cost(agreement, behaviours),
        payoff_if_honest,
    )


def _cost(agreement: Agreement, behaviours: tuple[str | Behaviour, ...]) -> FloatArray:
    """What each client's work really costs her over all rounds."""
    return np.array(
        [
            behaviour(name).cost(offer.client.labeling_cost, offer.batch_price, offer.client.batch_size)
            for offer, name in zip(agreement.offers, behaviours, strict=True)
        ]
    )


def _simulated_payoff(
    job: DataJob,
    federation: SimulatedFederation,
    agreement: Agreement,
    behaviours: tuple[str | Behaviour, ...],
    operator: Operator,
) -> FloatArray:
    """All clients' payoffs with these behaviours, by the fast trainer, with the same draws as the job."""
    terms = agreement.terms
    training = Training(terms.rounds, terms.local_steps, terms.step_size)
    federated = with_training(federation.federated, training)
    profile = Profile(behaviours, [offer.client.batch_size for offer in agreement.offers])
    trained = train(federated, profile, operator.seed)
    loss = test_loss(federated.model, trained.params[0], federation.test, job.server.test_samples, operator.secret)
    asked = _rounds_asked(agreement)
    delivered = np.where(profile.reports_nothing, 0, asked)
    for client, empty in trained.empty_reports[0].items():
        delivered[client] -= empty
    counts = zip(agreement.offers, delivered.tolist(), asked.tolist(), strict=True)
    pay = [offer.pay(loss, reports, rounds) for offer, reports, rounds in counts]
    return np.array(pay) / job.server.minor_units - _cost(agreement, behaviours)


def _rounds_asked(agreement: Agreement) -> IntArray:
    """The number of rounds in which each client is asked for a report."""
    asked = np.zeros(len(agreement.offers), dtype=np.int64)
    for round_ in range(agreement.terms.rounds):
        for offer in offers_in_round(agreement, round_):
            asked[offer.client.index] += 1
    return asked
