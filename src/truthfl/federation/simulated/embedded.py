"""Run a whole job in one process: the deployed protocol with simulated clients on an in-process grid.

Imports `audition_payoff`, `client_labels`, `flower_simulation`, `folder_names`, `grid`, the protocol (`approval`,
`audit`, `offers`, `operator_folder`, `server`), `client_app`, `participant`, `files`, `job`, `learning`, the ledger,
the mechanism and Flower.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from truthfl.federation.protocol.approval import PlanSummary
from truthfl.federation.protocol.audit import test_loss
from truthfl.federation.protocol.offers import left_out_of
from truthfl.federation.protocol.operator_folder import fixed_draws, kept_key
from truthfl.federation.protocol.report_rule import report_rule
from truthfl.federation.protocol.server import ActivityProgress, Operator, conduct_job, is_complete, job_name
from truthfl.federation.simulated.audition_payoff import audition_costs, payoffs_if_honest, rounds_asked
from truthfl.federation.simulated.client_labels import AskedLabels, ClientLabels, has_audition, in_labeling_order
from truthfl.federation.simulated.flower_simulation import run_in_simulation
from truthfl.federation.simulated.folder_names import folder_names
from truthfl.federation.simulated.grid import InProcessGrid
from truthfl.files import without_waiting_for_disk
from truthfl.job import DataJob
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.behaviours import TRUTHFUL, behaviour
from truthfl.learning.federated import Federated
from truthfl.learning.federations import SimulatedFederation, with_rule, with_training
from truthfl.learning.model import Labels
from truthfl.learning.pilot_design import PilotDesign
from truthfl.learning.profile import Profile
from truthfl.learning.training import train
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import digest
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.settlement import read_settlement
from truthfl.ledger.terms import Agreement, Offer
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.setting import Training

FIRST_NODE = 1000
RESULTS = "results.json"
MOST_FEATURES = 2**28  # bytes: if all clients' samples take more, a client's are gathered whenever she uses them


@dataclass(frozen=True, eq=False)
class RunOutcome:
    """A finished simulated job. Money is in the job's currency; arrays have one value per client of the job.

    view              the ledger's entries of the job
    behaviour         the name of each client's behaviour
    refused           whether none of her reports was taken, of those she was asked for
    pay, cost         what she is paid, and what her work really costs her; 0 for who was not asked by the plan
    payoff_if_honest  her payoff if she alone had been honest instead; NaN for honest clients
    offers            her offer; None for who was not asked by the plan
    stopped_at_gate   whether she did not pass the audition
    label_pay, computing_pay   the two parts of pay under an audition, before rounding; 0 under other contracts
    """

    view: JobView
    behaviour: tuple[str, ...]
    refused: NDArray[np.bool_]
    pay: FloatArray
    cost: FloatArray
    payoff_if_honest: FloatArray
    offers: tuple[Offer | None, ...]
    stopped_at_gate: NDArray[np.bool_]
    label_pay: FloatArray
    computing_pay: FloatArray

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
    again: bool = False,
    show_plan: Callable[[PlanSummary], None] = lambda _: None,
) -> RunOutcome:
    """Run a job: plan, offer, label, audition, train, test, pay. Then train again for each liar, with her alone honest.

    An interrupted job in this folder is continued; of a complete one, the outcome is returned.

    ledger     a file or the address of a database; ledger.db in the folder if None
    design     of the pilot; the default if None
    in_flower  whether the nodes are those of Flower's simulation, in other processes
    again      run a complete job once more, as another job
    show_plan  called with a plan before its offers go out
    """
    federation = job.simulated_federation()
    with open_ledger(ledger or folder / "ledger.db") as opened_ledger:
        draws = fixed_draws(seed)
        key, approve = kept_key(folder / "operator"), partial(_approve, has_audition(job), show_plan)
        operator = Operator(opened_ledger, folder, key, draws.secret, draws.seed, approve=approve, live=False)
        name = job_name(opened_ledger, job, seed, again=again)

        def serve(grid: Grid) -> JobView:
            return conduct_job(grid, job, name, operator, lambda job, side: job.plan(side, design), progress)

        if is_complete(opened_ledger, name):
            view = job_view(name, opened_ledger.entries(name))
        elif in_flower:
            participant_at = partial(_rebuilt_participant, job, folder.resolve(), seed)
            view = run_in_simulation(len(job.clients), participant_at, serve)
        else:
            labels = None if has_audition(job) else _drawn_labels(job, federation, seed)
            view = serve(grid_of(simulated_participants(job, federation, folder, labels)))
    return _outcome(job, federation, view, operator)


def _approve(audition: bool, show_plan: Callable[[PlanSummary], None], plan: PlanSummary) -> bool:
    """Without an audition all must be asked: the labels of all clients are drawn before the plan is made."""
    show_plan(plan)
    for name, reason in () if audition else plan.left_out.items():
        raise InputError(f"{name}: {reason}; leave {name} out of the job, or change its numbers.")
    return True


def _drawn_labels(job: DataJob, federation: SimulatedFederation, seed: int) -> Labels:
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
    homes = [folder / "participants" / own for own in folder_names(job.clients.name)]
    with without_waiting_for_disk():
        return {FIRST_NODE + i: _participant(job, federated, i, home, all_labels) for i, home in enumerate(homes)}


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


_REBUILT: dict[str, tuple[Federated, ClientLabels | AskedLabels]] = {}


def _rebuilt_participant(job: DataJob, folder: Path, seed: int, client: int) -> Participant:
    """Build a client from the job alone, in another process; data and labels are cached."""
    cache_key = digest({"job": job.document(), "seed": seed})
    if cache_key not in _REBUILT:
        federation = job.simulated_federation()
        drawn = None if has_audition(job) else _drawn_labels(job, federation, seed)
        _REBUILT[cache_key] = _labeling(job, federation, drawn)
    federated, labels = _REBUILT[cache_key]
    home = folder / "participants" / folder_names(job.clients.name)[client]
    return _participant(job, federated, client, home, labels)


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


def _outcome(job: DataJob, federation: SimulatedFederation, view: JobView, operator: Operator) -> RunOutcome:
    agreement, behaviours = view.agreement, tuple(map(behaviour, job.clients.behaviour))
    left_out = left_out_of(view.plans[-1].document) if view.plans else {}
    names = [name for name in job.clients.name if name not in left_out]
    if agreement is None or [offer.client.name for offer in agreement.offers] != names:
        raise InputError("a simulated job has all of its clients; this ledger has another number of offers.")
    asked = [i for i, name in enumerate(job.clients.name) if name not in left_out]
    settlements = [read_settlement(view.settlements[offer.client.name]) for offer in agreement.offers]
    own = tuple(behaviours[i] for i in asked)
    if has_audition(job):
        passed = {settled.client for settled in settlements if settled.passed}
        cost = audition_costs(agreement, own, set(view.commitments), passed)
        solo_loss = {settled.client: settled.solo_loss for settled in settlements}
        draws = (operator.seed, operator.secret)
        if_honest = payoffs_if_honest(job, federation, agreement, own, solo_loss, draws)
    else:
        cost, if_honest = _cost(agreement, own), _payoffs_if_honest(job, federation, agreement, own, operator)

    def of_all(values: Sequence[float], otherwise: float = 0.0) -> FloatArray:
        """The values of those with an offer at their positions among all clients."""
        result = np.full(len(behaviours), otherwise, dtype=float)
        result[asked] = values
        return result

    offers: list[Offer | None] = [None] * len(behaviours)
    for position, offer in zip(asked, agreement.offers, strict=True):
        offers[position] = offer
    never_honest = np.array([np.nan if kind.truthful else 0.0 for kind in behaviours])
    return RunOutcome(
        view=view,
        behaviour=tuple(kind.name for kind in behaviours),
        refused=of_all([one.delivered == 0 and one.passed is not False for one in settlements]).astype(bool),
        pay=of_all([settled.pay / job.server.minor_units for settled in settlements]),
        cost=of_all(cost.tolist()),
        payoff_if_honest=np.where([offer is None for offer in offers], never_honest, of_all(if_honest.tolist())),
        offers=tuple(offers),
        stopped_at_gate=of_all([settled.passed is False for settled in settlements]).astype(bool),
        label_pay=of_all([settled.label_pay or 0.0 for settled in settlements]),
        computing_pay=of_all([settled.computing_pay or 0.0 for settled in settlements]),
    )


def _payoffs_if_honest(
    job: DataJob,
    federation: SimulatedFederation,
    agreement: Agreement,
    behaviours: tuple[Behaviour, ...],
    operator: Operator,
) -> FloatArray:
    """Each liar's payoff if she alone had been honest, under a contract without audition; NaN for honest clients."""
    payoff = np.full(len(behaviours), np.nan)
    for client, kind in enumerate(behaviours):
        if not kind.truthful:
            one_honest = (*behaviours[:client], TRUTHFUL, *behaviours[client + 1 :])
            payoff[client] = _simulated_payoff(job, federation, agreement, one_honest, operator)[client]
    return payoff


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
    rule = report_rule(terms, len(agreement.offers), job.aggregation)
    federated = with_rule(with_training(federation.federated, training), rule)
    profile = Profile(behaviours, [offer.client.batch_size for offer in agreement.offers])
    trained = train(federated, profile, operator.seed)
    loss = test_loss(federated.model, trained.params[0], federation.test, job.server.test_samples, operator.secret)
    asked = rounds_asked(agreement, agreement)
    delivered = asked.copy()
    if not rule.clips:  # masked reports cannot be refused
        delivered[profile.reports_nothing] = 0
        for client, refused in trained.refused_reports[0].items():
            delivered[client] -= refused
    counts = zip(agreement.offers, delivered.tolist(), asked.tolist(), strict=True)
    pay = [offer.pay(loss, reports, rounds) for offer, reports, rounds in counts]
    return np.array(pay) / job.server.minor_units - _cost(agreement, behaviours)
