"""The audition: clients train alone and commit to their models. Then the models are opened, checked and tested.

No model is opened before all commitments are in the ledger or late. No common model is sent before the results are in
the ledger. A model known from an earlier job is not paid. A model that is too good waits for the operator
(`known_models`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message

from truthfl.amounts import amount_text
from truthfl.coded_text import CodedText, amount, coded, decimal, untranslated
from truthfl.federation.operator.live_status import AUDITIONING
from truthfl.federation.protocol.enrolment import REPLY_TIMEOUT, Roster
from truthfl.federation.protocol.final_model import OPPOSED, opposed, solo_file, tested_losses
from truthfl.federation.protocol.job_task import model_of
from truthfl.federation.protocol.known_models import (
    Tested,
    hold_models,
    known_models,
    read_tested,
    unpaid_reasons,
    wait_for_decisions,
)
from truthfl.federation.protocol.messages import (
    AUDITION_ARRIVED,
    AUDITION_COMMIT,
    AUDITION_OPEN,
    NEWS_TIMEOUT,
    STOPPED,
    allow_replies_of,
    model_digest,
    query_message,
)
from truthfl.federation.protocol.reports import Awaited, Opened, commitment_or_reason, opening_or_reason
from truthfl.files import write_file
from truthfl.flower_patches import CLIENT_APP_FAILED
from truthfl.home.record import COMMITTED, OPENED, arrival_word
from truthfl.learning.data.datasets import npy_bytes
from truthfl.learning.data.federations import ServerSide
from truthfl.learning.data.samples import LabeledSamples
from truthfl.ledger.entry import Item
from truthfl.ledger.evidence import (
    LATE,
    NO_LABELS,
    NOT_OPENED,
    SoloEvidence,
    expected_solo_loss,
    highest_passing_loss,
    level_shifts,
    no_model_reason,
    passes,
)
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.signing import PrivateKey
from truthfl.ledger.terms import FEWEST_MASKED, Agreement, Offer

AGAIN = "duplicated: it came after another one"
ShowProgress = Callable[[int], None]


@dataclass(eq=False)
class Refusals:
    """Why auditions were refused: by client, also for those that came after an earlier one."""

    of_client: dict[str, str] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)


def hold_auditions(
    roster: Roster,
    agreement: Agreement,
    labeled: Collection[str],
    folder: Path,
    side: ServerSide,
    secret: str,
    key: PrivateKey,
    progress: ShowProgress,
    seconds_to_decide: float,
) -> None:
    """Hold the auditions of all accepted offers, unless the ledger has their results; then tell who did not pass.

    labeled            names of the clients who have all labels
    folder             the operator's
    secret             of the test draw
    key                the operator's: signs what arrived
    progress           called with the number of clients who have committed to a model
    seconds_to_decide  how long the operator has to refuse a model that is too good
    """
    view = job_view(roster.job_name, roster.ledger.entries(roster.job_name))
    if not view.auditions:
        tested = read_tested(folder, roster.job_name)
        if tested is None:
            refusals = Refusals()
            commitments = _collect_commitments(roster, agreement, view, labeled, refusals, progress)
            opened = _collect_openings(roster, agreement, commitments, refusals, key)
            _refuse_opposed(roster, agreement, opened, refusals, side.test, secret)
            _confirm_openings(roster, agreement, opened, key)
            tested = _test(roster, agreement, opened, refusals, side.test, secret)
            known = known_models(roster.ledger, folder, roster.job_name, side, agreement)
            hold_models(roster, agreement, tested, known, folder)
        wait_for_decisions(roster, seconds_to_decide)
        _record_results(roster, agreement, tested, folder)
        view = job_view(roster.job_name, roster.ledger.entries(roster.job_name))
    if not view.rounds:
        _tell_stopped(roster, agreement, view)
        _tell_of_no_rounds(roster, agreement, view)


def _collect_commitments(
    roster: Roster,
    agreement: Agreement,
    view: JobView,
    labeled: Collection[str],
    refusals: Refusals,
    progress: ShowProgress,
) -> dict[str, str]:
    """Ask clients with labels for their commitments until all arrive or time is up, and write them to the ledger."""
    commitments = {name: str(entry.document["commitment"]) for name, entry in view.commitments.items()}
    refusals.of_client |= {
        offer.client.name: roster.control.removed.get(offer.client.name, NO_LABELS)
        for offer in agreement.offers
        if offer.client.name not in labeled and offer.client.name not in commitments
    }

    items: list[Item] = []

    def take(offer: Offer, reply: Message) -> str | None:
        name = offer.client.name
        commitment, reason = commitment_or_reason(reply)
        if commitment is None:
            return reason
        document = {"client": name, "offer": offer.hash, "commitment": commitment}
        items.append(Item(roster.job_name, "commitment", name, document))
        commitments[name] = commitment
        return None

    def record() -> None:
        roster.ledger.append_all(items)
        items.clear()
        progress(len(commitments))

    known = {*commitments, *refusals.of_client}
    waiting = [offer for offer in agreement.offers if offer.client.name not in known]
    _ask_until_late(roster, AUDITION_COMMIT, waiting, agreement.terms.audition_seconds, take, refusals, LATE, record)
    return commitments


def _collect_openings(
    roster: Roster, agreement: Agreement, commitments: Mapping[str, str], refusals: Refusals, key: PrivateKey
) -> dict[str, Opened]:
    """Ask the clients who committed for salt and model; return the sound ones.

    Each gets the operator's signed confirmation of the commitment. Without it no model is sent.
    """
    start = model_of(agreement.terms, roster.task).init(agreement.terms.seed)
    allow_replies_of(roster.grid, start.nbytes)
    opened: dict[str, Opened] = {}

    def take(offer: Offer, reply: Message) -> str | None:
        found = opening_or_reason(reply, start, offer.hash, commitments[offer.client.name], agreement.terms.solo_bound)
        if isinstance(found, str):
            return found
        opened[offer.client.name] = found
        return None

    waiting = [offer for offer in agreement.offers if offer.client.name in commitments]
    words = {
        offer.client.name: {"word": arrival_word(offer, COMMITTED, commitments[offer.client.name], key)}
        for offer in waiting
    }
    seconds = agreement.terms.audition_seconds
    _ask_until_late(roster, AUDITION_OPEN, waiting, seconds, take, refusals, NOT_OPENED, more=words)
    allow_replies_of(roster.grid, 0)
    return opened


def _confirm_openings(roster: Roster, agreement: Agreement, opened: Mapping[str, Opened], key: PrivateKey) -> None:
    """Send the operator's signed confirmation to the clients whose models were taken, without waiting for delivery."""
    documents = {
        roster.node_of[name]: {
            "offer": offer.hash,
            "word": arrival_word(offer, OPENED, model_digest(opened[name].model), key),
        }
        for offer in agreement.offers
        if (name := offer.client.name) in opened and name in roster.node_of
    }
    messages = [query_message(AUDITION_ARRIVED, node, document) for node, document in documents.items()]
    roster.news.send(messages, NEWS_TIMEOUT)


def _ask_until_late(
    roster: Roster,
    action: str,
    offers: list[Offer],
    seconds: float,
    take: Callable[[Offer, Message], str | None],
    refusals: Refusals,
    late: str,
    record: Callable[[], None] = lambda: None,
    more: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Ask the clients with these offers until all have answered or time is up.

    A client's first answer counts: `take` returns None if it is taken, or the reason why it is refused. Nodes that are
    away, or disconnect while they are asked, are asked again. Clients whom the operator removes are not asked again. If
    the operator ends the job, this continues, since labels are paid by it.

    record  called after `take` has handled all replies so far
    more    by client: additional fields of their message
    """
    told, clock = more or {}, roster.stage(AUDITIONING, seconds, ends_with_job=False)

    def question(offer: Offer) -> dict[str, Any]:
        left = round(clock.seconds_left, 1)
        return {"offer": offer.hash, "seconds_left": left, **told.get(offer.client.name, {})}

    def removed(offer: Offer, reason: str) -> None:
        refusals.of_client[offer.client.name] = reason

    awaited = Awaited(roster, clock, {offer.client.name: offer for offer in offers}, removed)
    for there in awaited.turns():
        for _, offer, reply in awaited.replies(action, there, question, min(REPLY_TIMEOUT, clock.seconds_left)):
            if reply.has_error() and reply.error.code != CLIENT_APP_FAILED:
                continue
            name = offer.client.name
            if awaited.waiting.pop(name, None) is None:
                refusals.again[name] = AGAIN
                continue
            reason = take(offer, reply)
            if reason is not None:
                refusals.of_client[name] = reason
        record()
    refusals.of_client |= dict.fromkeys(awaited.waiting, late)


def _refuse_opposed(
    roster: Roster,
    agreement: Agreement,
    opened: dict[str, Opened],
    refusals: Refusals,
    test: LabeledSamples,
    secret: str,
) -> None:
    """Refuse models whose loss is good only because the test may turn their scores round; a mean cannot."""
    names, model = list(opened), model_of(agreement.terms, roster.task)
    against = opposed(agreement.terms, model, [opened[name].model for name in names], test, secret)
    for name, turned in zip(names, against, strict=True):
        if turned:
            del opened[name]
            refusals.of_client[name] = f"it {OPPOSED}"


def _test(
    roster: Roster,
    agreement: Agreement,
    opened: Mapping[str, Opened],
    refusals: Refusals,
    test: LabeledSamples,
    secret: str,
) -> Tested:
    """Test the solo models."""
    names, model = list(opened), model_of(agreement.terms, roster.task)
    losses = tested_losses(model, [opened[name].model for name in names], test, secret)
    return Tested(opened, dict(zip(names, losses, strict=True)), refusals.of_client, refusals.again)


def _record_results(roster: Roster, agreement: Agreement, tested: Tested, folder: Path) -> None:
    """Write the solo models to a file, then all results and refusals to the ledger at once."""
    offers, model = agreement.offers, model_of(agreement.terms, roster.task)
    view = job_view(roster.job_name, roster.ledger.entries(roster.job_name))
    unpaid = unpaid_reasons(view)
    solo_loss = {
        offer.client.name: None if offer.client.name in unpaid else tested.losses.get(offer.client.name)
        for offer in offers
    }
    shifts = level_shifts(offers, solo_loss)
    models = np.full((len(offers), len(model.init(agreement.terms.seed))), np.nan, dtype=np.float32)
    results = []
    for row, offer in enumerate(offers):
        name = offer.client.name
        one = tested.opened.get(name)
        if one is not None:
            models[row] = one.model
        passed = passes(offer, solo_loss[name], shifts[name])
        reason = unpaid.get(name) or _reason(offer, solo_loss[name], shifts[name], tested.refused.get(name))
        document = {
            "client": name,
            "offer": offer.hash,
            "model": None if one is None else model_digest(one.model),
            "salt": None if one is None else one.salt,
            "solo_loss": solo_loss[name],
            "level_shift": shifts[name],
            "passed": passed,
            "reason": None if passed else reason,
        }
        results.append(Item(roster.job_name, "audition", name, document))
    write_file(solo_file(folder / "models", roster.job_name), npy_bytes(models))
    rejections = [
        _rejection(roster, name, reason, key)
        for key, reasons in (("first", tested.refused), ("again", tested.again))
        for name, reason in reasons.items()
    ]
    roster.ledger.append_all([*rejections, *results])


def _reason(offer: Offer, solo_loss: float | None, level_shift: float, refusal: str | None) -> str:
    """Why a client does not take part, in a sentence."""
    if solo_loss is None:
        return f"No model was taken: {refusal or NOT_OPENED}."
    expected = expected_solo_loss(offer, level_shift)
    return coded(
        "news.stopped_loss",
        "The model has a loss of {own}; {expected} was expected, and above {limit} a model is far worse than honest "
        "ones.",
        own=decimal(solo_loss, 2),
        expected=decimal(expected, 2),
        limit=decimal(highest_passing_loss(offer, level_shift), 2),
    )


def _told_reason(offer: Offer, result: Mapping[str, Any]) -> CodedText:
    """The reason of an audition's row, with its form if it has one."""
    if result["solo_loss"] is not None:
        return untranslated(_reason(offer, result["solo_loss"], result["level_shift"], None))
    return untranslated(no_model_reason(str(result["reason"])))


def _rejection(roster: Roster, client: str, reason: str, which: str) -> Item:
    document = {"stage": "audition", "round": None, "client": client, "node": None, "reason": reason}
    return Item(roster.job_name, "rejection", f"audition/{client}/{which}", document)


def _tell_of_no_rounds(roster: Roster, agreement: Agreement, view: JobView) -> None:
    """If nobody passed, or too few for the sums that the contract promises, record it and tell those who passed."""
    taking_part, from_solo = view.taking_part, agreement.terms.starts_from_solo_models
    if taking_part is None or (taking_part.offers and (taking_part.rounds or not agreement.rounds)):
        return
    names = [offer.client.name for offer in taking_part.offers]
    if not names:
        if from_solo:
            _record_no_rounds(roster, "nobody passed: the final model is the common one from which training starts")
        return
    sentence = coded(
        "news.no_rounds",
        "Only {passed} passed the audition, and by the contract reports are sent in sums of at least {fewest}. So "
        "there are no training rounds; you are paid for your labels.",
        passed=len(names),
        fewest=FEWEST_MASKED,
    )
    reason = f"only {', '.join(names)} passed, and masked reports need {FEWEST_MASKED}: there are no training rounds"
    if len(names) >= FEWEST_MASKED:
        sentence = coded(
            "news.no_rounds_weights",
            "By the contract reports are sent in sums that hide each of them; among those who passed the audition one "
            "or two have too much of the weight. So there are no training rounds; you are paid for your labels.",
        )
        reason = (
            f"of those who passed {taking_part.masks_fault}: a sum would show a report. There are no training rounds"
        )
    if from_solo:
        sentence = coded("news.mean_is_final", "{why} The final model is the mean of your solo models.", why=sentence)
        reason += ", and the final model is the mean of their solo models"
    _record_no_rounds(roster, reason)
    roster.tell([roster.node_of[name] for name in names if name in roster.node_of], sentence, over=False)


def _record_no_rounds(roster: Roster, reason: str) -> None:
    document = {"stage": "training", "round": None, "client": None, "node": None, "reason": reason}
    roster.ledger.append(roster.job_name, "rejection", "training/too-few", document)


def _tell_stopped(roster: Roster, agreement: Agreement, view: JobView) -> None:
    """Tell each client who does not take part why, and what it means for their pay."""
    for offer in agreement.offers:
        result = view.auditions[offer.client.name].document
        node = roster.node_of.get(offer.client.name)
        if result["passed"] or node is None:
            continue
        evidence = SoloEvidence(result["solo_loss"], result["level_shift"], offer.client.samples)
        units, currency = offer.job.minor_units, offer.job.currency
        pay = float(offer.pay(offer.job.expected_loss, 0, 0, evidence)) / units
        sentence = coded(
            "news.stopped",
            "You did not pass the audition. {reason} You take no part in the joint training and are paid for labels by "
            "the formula: {pay}.",
            reason=_told_reason(offer, result),
            pay=amount(f"{amount_text(pay, units)} {currency}", pay, units, currency),
        )
        roster.tell([node], sentence, over=False, about=STOPPED)
