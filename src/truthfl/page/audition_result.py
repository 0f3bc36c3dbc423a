"""The audition in a receipt: its evidence, and what the page says of it.

Receipts come from the server and are untrusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truthfl.ledger.early_end import loss_in_receipt
from truthfl.ledger.solo_evidence import (
    SoloEvidence,
    audition_of,
    expected_solo_loss,
    label_and_computing_pay,
    no_model_reason,
    observation_of,
)
from truthfl.ledger.terms import Offer
from truthfl.page.audition_terms import audition_numbers
from truthfl.page.shown_text import shown

LONGEST_REASON = 300  # of letters, of the server's reason


def evidence_in(offer: Offer, settlement: Mapping[str, Any]) -> SoloEvidence | None:
    """The evidence of the audition in a settlement; None without an audition."""
    if not offer.job.has_audition:
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

    labels, computing     the parts of pay
    expected, limit       expected solo loss, and the highest that passes
    expected_joint_loss   with the labels of those who took part
    reason                the server's, if no model of hers was taken; reason_message: the same for the browser
    """
    if evidence is None:
        return None
    settlement = document["settlement"]
    test_loss = loss_in_receipt(document, offer, evidence)
    rounds, expected = (settlement["delivered"], settlement["asked"]), expected_solo_loss(offer, evidence.level_shift)
    parts = label_and_computing_pay(offer, test_loss, *rounds, evidence)
    joint = audition_of(offer).expected_joint_loss(observation_of(test_loss, *rounds, evidence))
    reason = document["audition"]["result"]["reason"]
    return {
        "passed": settlement["passed"] is True,
        "reason": None if reason is None else str(reason)[:LONGEST_REASON],
        "reason_message": None if reason is None else shown(no_model_reason(str(reason)[:LONGEST_REASON])),
        "solo_loss": evidence.solo_loss,
        "expected": expected,
        "limit": expected + audition_numbers(offer)["gate"],
        "expected_joint_loss": float(joint[0]),
        "labels": parts[0],
        "computing": parts[1],
    }
