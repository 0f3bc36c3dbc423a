"""Why a receipt pays nothing, or less than nothing, as messages.

Receipts come from the server and are untrusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from truthfl.ledger.commands import END, REMOVE
from truthfl.ledger.solo_evidence import LATE, NO_LABELS, NOT_OPENED, SoloEvidence, expected_solo_loss
from truthfl.ledger.terms import Offer
from truthfl.page.audition_terms import audition_numbers
from truthfl.page.catalogue import Message, rounded
from truthfl.texts import plain

WITH_REASON = {END: "receipt.why_ended_reason", REMOVE: "receipt.why_removed_reason"}
WITHOUT_REASON = {END: "receipt.why_ended", REMOVE: "receipt.why_removed"}


def why_nothing(
    offer: Offer, document: Mapping[str, Any], loss: float, evidence: SoloEvidence | None
) -> list[dict[str, Any]]:
    """The reasons, a message each; empty if something is paid.

    loss      by which she is paid
    evidence  of her audition; None without one
    """
    settlement = document["settlement"]
    if settlement["pay"] > 0:
        return []
    commands = [_by_command(one["document"]) for one in document.get("commands", {}).values()]
    stopped = None if evidence is None or settlement["passed"] is True else _by_audition(offer, document, evidence)
    own = [stopped] if stopped is not None else _by_work(offer, settlement, loss, evidence)
    return [asdict(message) for message in [*commands, *own] if message is not None]


def _by_command(command: Mapping[str, Any]) -> Message | None:
    """What the operator did to the job, or to her."""
    kind, why = str(command["kind"]), plain(command.get("why", "")).rstrip(".")
    if why and kind in WITH_REASON:
        return Message(WITH_REASON[kind], {"reason": {"quoted": why}})
    return Message(WITHOUT_REASON[kind]) if kind in WITHOUT_REASON else None


def _by_audition(offer: Offer, document: Mapping[str, Any], evidence: SoloEvidence) -> Message:
    if evidence.solo_loss is not None:
        limit = expected_solo_loss(offer, evidence.level_shift) + audition_numbers(offer)["gate"]
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
    """What came out of her labels and rounds, if she was not stopped."""
    own = None
    if evidence is not None and evidence.solo_loss is not None:
        expected = expected_solo_loss(offer, evidence.level_shift)
        values = {"own": rounded(evidence.solo_loss, 2), "expected": rounded(expected, 2)}
        own = Message("receipt.why_weak_labels", values)
    if settlement["delivered"] == 0:
        return [own, Message("receipt.why_no_rounds")]
    joint = {"loss": rounded(loss, 2), "expected": rounded(offer.job.expected_loss, 2)}
    return [own, Message("receipt.why_weak_model", joint)]
