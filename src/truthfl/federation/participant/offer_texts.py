"""Whether an offer's texts are fit to be shown: the operator wrote them, and a participant's screen shows them."""

from __future__ import annotations

from truthfl.ledger.terms import Offer
from truthfl.texts import LONGEST_NAME, is_plain

LONGEST_TERM = 2000
MOST_CLASSES = 100_000


def offer_text_fault(offer: Offer) -> str | None:
    """The first text of an offer that is too long or has control characters, in words; None if there is none."""
    job = offer.job
    texts = {"name": job.name, "contract": job.contract, "currency": job.currency}
    limits = dict.fromkeys(texts, LONGEST_NAME)
    for name, text in (texts | {"formula": job.formula, "dropping_out": job.dropping_out}).items():
        if not is_plain(text, limits.get(name, LONGEST_TERM)):
            return (
                f"its {name} is no text of at most {limits.get(name, LONGEST_TERM)} letters without control characters"
            )
    if len(job.classes) > MOST_CLASSES or not all(is_plain(name, LONGEST_NAME) for name in job.classes):
        return f"its classes are not at most {MOST_CLASSES:,} names without control characters"
    return None
