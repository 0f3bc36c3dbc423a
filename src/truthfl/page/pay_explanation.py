"""Sentences that say how pay is determined: the page's own for the built-in contracts, the mechanism's for others."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from truthfl.ledger.terms import Offer
from truthfl.page.catalogue import Message, amount_of
from truthfl.page.numbers import money

if TYPE_CHECKING:
    from truthfl.mechanism.checks import FloatArray


def explanation(offer: Offer) -> list[dict[str, Any] | str]:
    """Messages; sentences in English where the contract is not a built-in one."""
    known = _built_in(offer)
    job = offer.job
    sentences: list[dict[str, Any] | str] = (
        [*offer.mechanism.explanation(lambda amount: money(amount, job.minor_units, job.currency))]
        if known is None
        else [asdict(message) for message in known]
    )
    return [*sentences, *([asdict(Message("explanation.stated_cost"))] if offer.client.stated else [])]


def _built_in(offer: Offer) -> list[Message] | None:
    """The messages for a built-in contract; None for others."""
    from truthfl.mechanism.audition import Audition
    from truthfl.mechanism.contract import Contract

    mechanism, job = offer.mechanism, offer.job

    def amount(values: FloatArray) -> dict[str, Any]:
        return amount_of(float(values[0]), job.minor_units, job.currency)

    if type(mechanism) is Contract:
        return [Message("explanation.lceme", {"worth": amount(mechanism.slope / 100)})]
    if type(mechanism) is Audition:
        labels = {
            "number": int(mechanism.labels[0]),
            "expected": amount(mechanism.label_base),
            "worth": amount(mechanism.label_slope / 100),
        }
        return [
            Message("explanation.audition_labels", labels),
            Message("explanation.audition_computing", {"expected": amount(mechanism.joint_base)}),
            Message("explanation.audition_limits", {"most": amount(mechanism.label_cap + mechanism.joint_cap)}),
        ]
    return None
