"""Payoffs of a simulated job without an audition, where pay depends on the joint model's loss alone."""

from __future__ import annotations

import numpy as np

from truthfl.federation.protocol.audit import test_loss
from truthfl.federation.protocol.operator_folder import Draws
from truthfl.federation.protocol.report_rule import report_rule
from truthfl.federation.simulated.audition_payoff import rounds_asked
from truthfl.job import DataJob
from truthfl.learning.behaviour import Behaviour
from truthfl.learning.behaviours import TRUTHFUL, behaviour
from truthfl.learning.federations import SimulatedFederation, with_rule, with_training
from truthfl.learning.profile import Profile
from truthfl.learning.training import train
from truthfl.ledger.terms import Agreement
from truthfl.mechanism.checks import FloatArray
from truthfl.mechanism.setting import Training


def payoffs_if_honest(
    job: DataJob,
    federation: SimulatedFederation,
    agreement: Agreement,
    behaviours: tuple[Behaviour, ...],
    draws: Draws,
) -> FloatArray:
    """Each liar's payoff if she alone had been honest; NaN for honest clients."""
    payoff = np.full(len(behaviours), np.nan)
    for client, kind in enumerate(behaviours):
        if not kind.truthful:
            one_honest = (*behaviours[:client], TRUTHFUL, *behaviours[client + 1 :])
            payoff[client] = simulated_payoffs(job, federation, agreement, one_honest, draws)[client]
    return payoff


def costs(agreement: Agreement, behaviours: tuple[str | Behaviour, ...]) -> FloatArray:
    """What each client's work really costs her over all rounds."""
    return np.array(
        [
            behaviour(name).cost(offer.client.labeling_cost, offer.batch_price, offer.client.batch_size)
            for offer, name in zip(agreement.offers, behaviours, strict=True)
        ]
    )


def simulated_payoffs(
    job: DataJob,
    federation: SimulatedFederation,
    agreement: Agreement,
    behaviours: tuple[str | Behaviour, ...],
    draws: Draws,
) -> FloatArray:
    """All clients' payoffs with these behaviours, by the fast trainer, with the same draws as the job."""
    terms = agreement.terms
    training = Training(terms.rounds, terms.local_steps, terms.step_size)
    rule = report_rule(terms, job.aggregation)
    federated = with_rule(with_training(federation.federated, training), rule)
    profile = Profile(behaviours, [offer.client.batch_size for offer in agreement.offers])
    trained = train(federated, profile, draws.seed)
    loss = test_loss(federated.model, trained.params[0], federation.test, job.server.test_samples, draws.secret)
    asked = rounds_asked(agreement, agreement)
    delivered = asked.copy()
    if not rule.clips:  # masked reports cannot be refused
        delivered[profile.reports_nothing] = 0
        for client, refused in trained.refused_reports[0].items():
            delivered[client] -= refused
    counts = zip(agreement.offers, delivered.tolist(), asked.tolist(), strict=True)
    pay = [offer.pay(loss, reports, rounds) for offer, reports, rounds in counts]
    return np.array(pay) / job.server.minor_units - costs(agreement, behaviours)
