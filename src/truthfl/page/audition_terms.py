"""The audition in an offer: a check that its terms make sense, and its numbers for the page.

Offers come from the server and are untrusted.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.solo_evidence import SoloEvidence, audition_of, label_and_computing_pay
from truthfl.ledger.terms import Offer


def require_sound_audition(offer: Offer) -> None:
    """Raise `InputError` unless the terms of the offer's audition are finite and mean what the page says of them."""
    from truthfl.learning.recipe import recipe_of

    recipe_of(offer.job.recipe)
    offer.require_payable()
    for name, value in (
        ("audition_cost", offer.client.audition_cost),
        ("audition_seconds", offer.job.audition_seconds),
    ):
        if not math.isfinite(value) or value < 0:
            raise InputError(f"the offer's {name} is {value}; it must be a number from 0 on.")


def audition_numbers(offer: Offer) -> dict[str, float]:
    """The terms of the offer's audition by name."""
    return {name: float(values[0]) for name, values in audition_of(offer).terms().items()}


def expected_evidence(offer: Offer, solo_rise: float = 0.0) -> SoloEvidence | None:
    """The evidence of an honest audition, with a solo loss that is higher by `solo_rise`; None without an audition."""
    if not offer.job.has_audition:
        return None
    terms = audition_numbers(offer)
    return SoloEvidence(terms["solo_level"] + solo_rise, 0.0, terms["total_labels"])


def audition_view(offer: Offer) -> dict[str, Any] | None:
    """Both parts of pay and the gate; None without an audition.

    labels, computing, total   each with expected and most pay
    level, spread              mean and standard deviation of honest clients' solo losses
    limit                      the highest solo loss that passes, if the others' solo losses are as expected
    label_deviation            standard deviation of label pay among honest clients
    stopped_chance             probability that an honest client does not pass
    """
    evidence = expected_evidence(offer)
    if evidence is None:
        return None
    terms = audition_numbers(offer)
    labels, computing = label_and_computing_pay(offer, offer.job.expected_loss, 1, 1, evidence)
    most_labels, most_computing = terms["label_cap"], terms["joint_cap"]
    excess_spread = terms["solo_spread"] * math.sqrt(1.0 + terms["labels"] / terms["total_labels"])
    return {
        "labels": {"expected": labels, "most": most_labels},
        "computing": {"expected": computing, "most": most_computing},
        "total": {"expected": labels + computing, "most": most_labels + most_computing},
        "level": terms["solo_level"],
        "spread": terms["solo_spread"],
        "limit": terms["solo_level"] + terms["gate"],
        "label_deviation": float(audition_of(offer).deviation(offer.job.expected_loss, 0.0)[0]),
        "stopped_chance": NormalDist(0.0, excess_spread).cdf(-terms["gate"]),
    }
