"""A receipt on the page: the reasons for its pay, and the audition's evidence.

Receipts come from the server and are untrusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from truthfl.ledger.commands import END, REMOVE
from truthfl.ledger.evidence import (
    LATE,
    NO_LABELS,
    NOT_OPENED,
    SoloEvidence,
    expected_solo_loss,
    highest_passing_loss,
    no_model_reason,
    observation_of,
    pay_parts,
)
from truthfl.ledger.settlement import loss_in_receipt
from truthfl.ledger.terms import Offer
from truthfl.page.catalogue import Message, rounded, shown
from truthfl.texts import plain

LONGEST_REASON = 300  # letters of the server's reason


def evidence_in(offer: Offer, settlement: Mapping[str, Any]) -> SoloEvidence | None:
    """The evidence of the audition in a settlement; None without an audition."""
    if not offer.job.has_solo_models:
        return None
    solo_loss = settlement["solo_loss"]
    return SoloEvidence(
        None if solo_loss is None else float(solo_loss),
        float(settlement["level_shift"]),
        float(settlement["present_labels"]),
        float(settlement.get("loss_rise", 0.0)),
    )


def result_view(offer: Offer, document: Mapping[str, Any], evidence: SoloEvidence | None) -> dict[str, Any] | None:
    """The audition of a receipt's document; None without one.

    parts                 of pay: their names, their purposes in words, and amounts
    expected, limit       expected solo loss, and the highest that passes
    expected_joint_loss   with the labels of the clients who took part
    reason                the server's, if it accepted no model of the client; reason_message: the same for the browser
    """
    if evidence is None:
        return None
    settlement = document["settlement"]
    test_loss = loss_in_receipt(document, offer, evidence)
    rounds, expected = (settlement["delivered"], settlement["asked"]), expected_solo_loss(offer, evidence.level_shift)
    joint = offer.contract.expected_joint_loss(observation_of(test_loss, *rounds, evidence))
    reason = document["audition"]["result"]["reason"]
    return {
        "passed": settlement["passed"] is True,
        "reason": None if reason is None else str(reason)[:LONGEST_REASON],
        "reason_message": None if reason is None else shown(no_model_reason(str(reason)[:LONGEST_REASON])),
        "solo_loss": evidence.solo_loss,
        "expected": expected,
        "limit": highest_passing_loss(offer, evidence.level_shift),
        "expected_joint_loss": offer.job.expected_loss if joint is None else float(joint[0]),
        "parts": [
            {"name": name, "words": offer.contract.part_words[name], "paid": part}
            for name, part in pay_parts(offer, test_loss, *rounds, evidence).items()
        ],
    }


WITH_REASON = {END: "receipt.why_ended_reason", REMOVE: "receipt.why_removed_reason"}
WITHOUT_REASON = {END: "receipt.why_ended", REMOVE: "receipt.why_removed"}


def why_nothing(
    offer: Offer, document: Mapping[str, Any], loss: float, evidence: SoloEvidence | None
) -> list[dict[str, Any]]:
    """The reasons for no pay, one message each; empty if something is paid.

    loss      on which pay depends
    evidence  of the client's audition; None without one
    """
    settlement = document["settlement"]
    if settlement["pay"] > 0:
        return []
    commands = [_by_command(one["document"]) for one in document.get("commands", {}).values()]
    stopped = None if evidence is None or settlement["passed"] is True else _by_audition(offer, document, evidence)
    own = [stopped] if stopped is not None else _by_work(offer, settlement, loss, evidence)
    return [asdict(message) for message in [*commands, *own] if message is not None]


def _by_command(command: Mapping[str, Any]) -> Message | None:
    """What the operator did to the job, or to the client."""
    kind, why = str(command["kind"]), plain(command.get("why", "")).rstrip(".")
    if why and kind in WITH_REASON:
        return Message(WITH_REASON[kind], {"reason": {"quoted": why}})
    return Message(WITHOUT_REASON[kind]) if kind in WITHOUT_REASON else None


def _by_audition(offer: Offer, document: Mapping[str, Any], evidence: SoloEvidence) -> Message:
    if evidence.solo_loss is not None:
        limit = highest_passing_loss(offer, evidence.level_shift)
        return Message("receipt.why_stopped", {"own": rounded(evidence.solo_loss, 2), "limit": rounded(limit, 2)})
    reason = plain(document["audition"]["result"]["reason"] or "")
    if NO_LABELS in reason:
        return Message("receipt.why_no_labels")
    if LATE in reason or NOT_OPENED in reason:
        return Message("receipt.why_no_model")
    return Message("receipt.why_refused", {"reason": {"english": reason.rstrip(".")}})


def _by_work(
    offer: Offer, settlement: Mapping[str, Any], loss: float, evidence: SoloEvidence | None
) -> list[Message | None]:
    """The result of the client's labels and rounds, if the client was not stopped."""
    own = None
    if evidence is not None and evidence.solo_loss is not None:
        expected = expected_solo_loss(offer, evidence.level_shift)
        values = {"own": rounded(evidence.solo_loss, 2), "expected": rounded(expected, 2)}
        own = Message("receipt.why_weak_labels", values)
    if settlement["delivered"] == 0 and offer.job.rounds:
        return [own, Message("receipt.why_no_rounds")]
    if not offer.contract.pays_by_joint_loss:
        return [own]
    joint = {"loss": rounded(loss, 2), "expected": rounded(offer.job.expected_loss, 2)}
    return [own, Message("receipt.why_weak_model", joint)]
