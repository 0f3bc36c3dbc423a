"""The terms of an offer that are signed in English, in sentences of the catalogues.

A sentence is given only if the signed words are just those that this version of truthfl writes for the contract: what
was signed in other words is shown as it was signed, and nothing besides.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from truthfl.ledger.early_end import BY_EXPECTED_LOSS, BY_LOWER_LOSS, BY_ROUNDS, IN_WORDS
from truthfl.ledger.terms import Offer
from truthfl.page.catalogue import Message

EARLY_END = {
    IN_WORDS + BY_ROUNDS: "terms.early_end_by_rounds",
    IN_WORDS + BY_LOWER_LOSS: "terms.early_end_lower_loss",
    IN_WORDS + BY_EXPECTED_LOSS: "terms.early_end",
}


def signed_terms_view(offer: Offer) -> dict[str, Any]:
    """Messages for the formula and for dropping out, a list each, empty if there are none; and the names of pay terms.

    lies   the signed words of the lies that were tried
    """
    return {
        "formula": [asdict(message) for message in formula_messages(offer)],
        "dropping_out": [asdict(message) for message in dropping_out_messages(offer)],
        "lies": [{"kind": lie.kind, "words": lie.words} for lie in offer.client.lies],
    }


def formula_messages(offer: Offer) -> list[Message]:
    """The formula in words."""
    from truthfl.mechanism.audition import Audition
    from truthfl.mechanism.baselines import FlatPay
    from truthfl.mechanism.contract import Contract

    keys = {
        Audition.formula: ("terms.formula_labels", "terms.formula_computing", "terms.formula_sum"),
        Contract.formula: ("terms.formula_lceme",),
        FlatPay.formula: ("terms.formula_flat",),
    }
    return [Message(key) for key in keys.get(offer.job.formula, ())]


def dropping_out_messages(offer: Offer) -> list[Message]:
    """What happens if she drops out, or the operator ends the job."""
    from truthfl.mechanism.audition import Audition
    from truthfl.mechanism.contract import Contract

    keys = {Audition.dropping_out: "terms.dropping_out_audition", Contract.dropping_out: "terms.dropping_out"}
    for words, key in keys.items():
        rest = offer.job.dropping_out.removeprefix(words).strip()
        if offer.job.dropping_out.startswith(words) and (not rest or rest in EARLY_END):
            return [Message(key), *([Message(EARLY_END[rest])] if rest else [])]
    return []
