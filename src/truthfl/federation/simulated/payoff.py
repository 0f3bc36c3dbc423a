"""Payoffs of a simulated job: what work costs, and what each client would have if they alone were honest."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.setting import FloatArray, IntArray
from truthfl.federation.operator.kept_jobs import Draws
from truthfl.federation.protocol.final_model import Evaluation, test_loss, tested_losses
from truthfl.federation.protocol.reports import report_rule
from truthfl.federation.protocol.rounds import joint_weights, offers_in_round
from truthfl.job import DataJob
from truthfl.learning.data.federations import SimulatedFederation
from truthfl.learning.data.partition import Federated
from truthfl.learning.data.samples import labels_alone
from truthfl.learning.models.model import Params
from truthfl.learning.people.behaviour import Behaviour
from truthfl.learning.people.behaviours import TRUTHFUL, behaviour
from truthfl.learning.people.labels import ask_for_labels
from truthfl.learning.people.profile import Profile
from truthfl.learning.solo import audition_model, changed_recipe, recipe_of, solo_mean
from truthfl.learning.training.train import train
from truthfl.ledger.evidence import SoloEvidence, level_shifts, passes
from truthfl.ledger.terms import Agreement, Offer

NEVER_ASKED = 1e-30  # the participation of clients who are stopped at the audition
ABSENT = Behaviour(
    "absent",
    "Is not asked for reports.",
    labels_honestly=False,
    computes_honestly=False,
    reports_honestly=False,
    report_scale=0.0,
    computes=False,
)


def audition_costs(
    agreement: Agreement, behaviours: Sequence[Behaviour], auditioned: Collection[str], passed: Collection[str]
) -> FloatArray:
    """What the work of each client with an offer really costs them.

    auditioned, passed   names of those who trained alone, and of those who computed in the joint training
    """
    return np.array(
        [
            kind.cost(
                offer.client.labeling_cost,
                offer.batch_price if offer.client.name in passed else 0.0,
                offer.client.batch_size,
            )
            + (_audition_cost(offer, kind) if offer.client.name in auditioned else 0.0)
            for offer, kind in zip(agreement.offers, behaviours, strict=True)
        ]
    )


def audition_payoffs_if_honest(
    job: DataJob,
    federation: SimulatedFederation,
    agreement: Agreement,
    behaviours: Sequence[Behaviour],
    solo_loss: Mapping[str, float | None],
    solo_models: NDArray[np.float32],
    draws: Draws,
) -> FloatArray:
    """The payoff of each client with an offer if they alone had been honest; NaN for honest clients.

    behaviours   of those with an offer
    solo_loss    of all of them in the job, None for none
    solo_models  (clients, parameters) of all of them in the job; NaN for none
    draws        of the job
    """
    restricted = federation_of_asked(job, federation.federated, agreement)
    payoff = np.full(len(agreement.offers), np.nan)
    for client, (offer, kind) in enumerate(zip(agreement.offers, behaviours, strict=True)):
        if not kind.truthful:
            model = honest_solo_model(restricted, offer, draws)
            honest_loss = tested_losses(restricted.model, [model], federation.test, draws.secret)[0]
            models = solo_models.copy()
            models[client] = model
            others = [*behaviours[:client], TRUTHFUL, *behaviours[client + 1 :]]
            losses = {**solo_loss, offer.client.name: honest_loss}
            payoff[client] = audition_payoffs(
                job, federation, restricted, agreement, others, losses, models, draws, wanted=(client,)
            )[0]
    return payoff


def federation_of_asked(job: DataJob, federated: Federated, agreement: Agreement) -> Federated:
    """The federation of the clients with offers, with the samples that they are asked to label."""
    labels = np.zeros(len(job.clients), dtype=np.int64)
    position = {name: i for i, name in enumerate(job.clients.name)}
    labels[[position[offer.client.name] for offer in agreement.offers]] = [
        offer.client.samples for offer in agreement.offers
    ]
    asked = ask_for_labels(federated, labels, job.data.seed)
    return replace(asked, training=agreement.terms.training)


def honest_solo_model(restricted: Federated, offer: Offer, draws: Draws) -> Params:
    """The client's solo model if they label all samples by hand and follow the recipe."""
    rows = restricted.partition.rows_of(offer.client.index)
    return audition_model(
        TRUTHFUL,
        restricted.model,
        restricted.data.features[rows],
        labels_alone(restricted.data.given(rows), draws.seed, offer.client.index),
        recipe_of(offer.job.recipe),
        client=offer.client.index,
        seed=draws.seed,
    )


def audition_payoffs(
    job: DataJob,
    federation: SimulatedFederation,
    restricted: Federated,
    agreement: Agreement,
    behaviours: Sequence[Behaviour],
    solo_loss: Mapping[str, float | None],
    solo_models: NDArray[np.float32],
    draws: Draws,
    wanted: Sequence[int] | None = None,
) -> FloatArray:
    """The payoffs of clients with offers, by the fast trainer, with the same draws as the job.

    Nothing is trained if all wanted are truthful, and their pay does not depend on the joint loss.

    wanted  the positions of those whose payoffs are returned; None for all
    """
    shifts = level_shifts(agreement.offers, solo_loss)
    present = [
        offer for offer in agreement.offers if passes(offer, solo_loss[offer.client.name], shifts[offer.client.name])
    ]
    taking_part = Agreement(agreement.terms, tuple(present))
    passed = {offer.client.name for offer in present}
    kinds = [
        kind if offer.client.name in passed else ABSENT
        for offer, kind in zip(agreement.offers, behaviours, strict=True)
    ]
    asked = rounds_asked(agreement, taking_part)
    own = {i: agreement.offers[i] for i in (range(len(agreement.offers)) if wanted is None else wanted)}
    loss, delivered = agreement.terms.expected_loss, asked
    by_loss = any(offer.contract.pays_by_joint_loss for offer in own.values())
    if by_loss or not all(behaviours[i].truthful for i in own):
        start = _start(restricted, agreement, present, solo_models, draws.seed)
        params, delivered = _trained(restricted, agreement, taking_part, kinds, asked, start, draws.seed)
        pilot = federation.pilot.data if agreement.terms.calibrated else None
        calibration = Evaluation(restricted.model, federation.test, pilot).calibration(params)
        loss = test_loss(restricted.model, params, federation.test, job.server.test_samples, draws.secret, calibration)
    samples = np.array([offer.client.samples for offer in agreement.offers], dtype=float)
    counted = np.divide(samples * delivered, asked, out=np.zeros(len(samples)), where=asked > 0)
    pay = [
        offer.pay(
            loss,
            int(delivered[i]),
            int(asked[i]),
            SoloEvidence(
                solo_loss[offer.client.name],
                shifts[offer.client.name],
                float(counted.sum() - counted[i] + samples[i]),
            ),
        )
        for i, offer in own.items()
    ]
    auditioned = {name for name, value in solo_loss.items() if value is not None}
    theirs = Agreement(agreement.terms, tuple(own.values()))
    cost = audition_costs(theirs, [behaviours[i] for i in own], auditioned, passed)
    return np.array(pay) / job.server.minor_units - cost


def rounds_asked(agreement: Agreement, taking_part: Agreement) -> IntArray:
    """The number of rounds in which each client with an offer is asked for a report."""
    asked = np.zeros(len(agreement.offers), dtype=np.int64)
    for round_ in range(taking_part.rounds):
        for offer in offers_in_round(taking_part, round_):
            asked[offer.client.index] += 1
    return asked


def _start(
    restricted: Federated, agreement: Agreement, present: Sequence[Offer], solo_models: NDArray[np.float32], seed: int
) -> Params:
    """The model from which the rounds of those who passed start."""
    if not agreement.terms.starts_from_solo_models or not present:
        return restricted.model.init(seed)
    weights = joint_weights(agreement, Agreement(agreement.terms, tuple(present)))
    rows = [offer.client.index for offer in present]
    return solo_mean(solo_models[rows], [weights[offer.client.name] for offer in present])


def _trained(
    restricted: Federated,
    agreement: Agreement,
    taking_part: Agreement,
    kinds: Sequence[Behaviour],
    asked: IntArray,
    start: Params,
    seed: int,
) -> tuple[Params, IntArray]:
    """The model that those who take part train, and the number of reports taken of each client.

    All clients keep their positions, so that the draws are those of the job; absent clients change nothing.
    """
    if not taking_part.rounds:
        return start, np.zeros_like(asked)
    weights, q = joint_weights(agreement, taking_part), restricted.participation
    federated = replace(
        restricted,
        weight=np.array([weights.get(offer.client.name, offer.client.weight) for offer in agreement.offers]),
        participation=np.where([offer.client.name in weights for offer in agreement.offers], q, NEVER_ASKED),
        rule=report_rule(agreement.terms, restricted.rule.aggregation),
    )
    profile = Profile(kinds, [offer.client.batch_size for offer in agreement.offers])
    trained = train(federated, profile, seed, start=start)
    if federated.rule.clips:  # masked reports cannot be refused
        return trained.params[0], asked
    delivered = np.where(profile.reports_nothing, 0, asked)
    for client, empty in trained.refused_reports[0].items():
        delivered[client] -= empty
    return trained.params[0], delivered


def _audition_cost(offer: Offer, kind: Behaviour) -> float:
    """What training alone costs the client, by the recipe that they really use."""
    recipe = recipe_of(offer.job.recipe)
    used = changed_recipe(recipe, behaviour(kind).solo_recipe)
    return offer.client.audition_cost * used.samples / recipe.samples


def joint_payoffs_if_honest(
    job: DataJob,
    federation: SimulatedFederation,
    agreement: Agreement,
    behaviours: tuple[Behaviour, ...],
    draws: Draws,
) -> FloatArray:
    """Each liar's payoff if they alone had been honest; NaN for honest clients."""
    payoff = np.full(len(behaviours), np.nan)
    for client, kind in enumerate(behaviours):
        if not kind.truthful:
            one_honest = (*behaviours[:client], TRUTHFUL, *behaviours[client + 1 :])
            payoff[client] = joint_payoffs(job, federation, agreement, one_honest, draws)[client]
    return payoff


def costs(agreement: Agreement, behaviours: tuple[str | Behaviour, ...]) -> FloatArray:
    """What each client's work really costs them over all rounds."""
    return np.array(
        [
            behaviour(name).cost(offer.client.labeling_cost, offer.batch_price, offer.client.batch_size)
            for offer, name in zip(agreement.offers, behaviours, strict=True)
        ]
    )


def joint_payoffs(
    job: DataJob,
    federation: SimulatedFederation,
    agreement: Agreement,
    behaviours: tuple[str | Behaviour, ...],
    draws: Draws,
) -> FloatArray:
    """All clients' payoffs with these behaviours, by the fast trainer, with the same draws as the job."""
    terms = agreement.terms
    rule = report_rule(terms, job.aggregation)
    federated = replace(federation.federated, training=terms.training, rule=rule)
    profile = Profile(behaviours, [offer.client.batch_size for offer in agreement.offers])
    trained = train(federated, profile, draws.seed)
    samples = job.server.test_samples
    loss = test_loss(federated.model, trained.params[0], federation.test, samples, draws.secret, None)
    asked = rounds_asked(agreement, agreement)
    delivered = asked.copy()
    if not rule.clips:  # masked reports cannot be refused
        delivered[profile.reports_nothing] = 0
        for client, refused in trained.refused_reports[0].items():
            delivered[client] -= refused
    counts = zip(agreement.offers, delivered.tolist(), asked.tolist(), strict=True)
    pay = [offer.pay(loss, reports, rounds) for offer, reports, rounds in counts]
    return np.array(pay) / job.server.minor_units - costs(agreement, behaviours)
