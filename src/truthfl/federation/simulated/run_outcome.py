"""The outcome of a simulated job, read from its ledger: each client's pay, cost and payoff."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.federation.protocol.offers import left_out_of
from truthfl.federation.protocol.operator_folder import Draws
from truthfl.federation.simulated import audition_payoff, loss_payoff
from truthfl.federation.simulated.client_labels import has_audition
from truthfl.job import DataJob
from truthfl.learning.behaviours import behaviour
from truthfl.learning.federations import SimulatedFederation
from truthfl.ledger.job_view import JobView
from truthfl.ledger.settlement import read_settlement
from truthfl.ledger.terms import Agreement, Offer
from truthfl.mechanism.checks import FloatArray


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


def outcome_of(job: DataJob, federation: SimulatedFederation, view: JobView, draws: Draws) -> RunOutcome:
    """The outcome of a finished job; what liars would have had is trained again, with the draws of the job."""
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
        cost = audition_payoff.audition_costs(agreement, own, set(view.commitments), passed)
        solo_loss = {settled.client: settled.solo_loss for settled in settlements}
        if_honest = audition_payoff.payoffs_if_honest(job, federation, agreement, own, solo_loss, draws)
    else:
        cost = loss_payoff.costs(agreement, own)
        if_honest = loss_payoff.payoffs_if_honest(job, federation, agreement, own, draws)

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
