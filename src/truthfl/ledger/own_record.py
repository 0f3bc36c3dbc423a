"""A receipt compared with what the participant's computer kept: its reports, and the final model she signed for.

Imports `canonical`, `command_state`, `early_end`, `participant_folder`, `round_record`, `terms`.
"""

from __future__ import annotations

from pathlib import Path

from truthfl.ledger import participant_folder
from truthfl.ledger.canonical import Document
from truthfl.ledger.command_state import REMOVED
from truthfl.ledger.early_end import trained_rounds, was_ended
from truthfl.ledger.round_record import RoundRecord, rounds_of
from truthfl.ledger.terms import Offer, offer_from

MOST_NAMED = 5  # rounds in a sentence
LONGEST_REASON = 200


def record_fault(home: Path, document: Document) -> str | None:
    """How a receipt's document differs from what her computer sent and signed; None if it does not.

    Receipts of earlier formats have no rounds and are not compared.
    """
    if "rounds" not in document:
        return None
    offer = offer_from(document["offer"])
    stated = {one["round"]: one for one in document["rounds"]}
    uncounted: list[tuple[int, str]] = []
    for own in rounds_of(home, offer.hash):
        one = stated.get(own.round + 1)
        if one is None:
            after_end = was_ended(document) and own.round >= trained_rounds(document)
            uncounted.append((own.round + 1, "the job was ended before it" if after_end else "you were not asked"))
            continue
        attempt = one.get("attempt", 0)
        if own.attempt < attempt:  # the server was stopped, and asked for the round again
            continue
        fault = _round_fault(own, one, attempt)
        if fault is not None:
            return fault
        if one["taken"] is not True:
            uncounted.append((own.round + 1, str(one.get("reason"))[:LONGEST_REASON]))
    if uncounted:
        named = "; ".join(f"round {number}: {reason}" for number, reason in uncounted[:MOST_NAMED])
        more = f"; and {len(uncounted) - MOST_NAMED} more" if len(uncounted) > MOST_NAMED else ""
        return f"your computer sent {len(uncounted)} reports that are not counted ({named}{more})"
    return _final_model_fault(home, offer, document)


def unasked_rounds(home: Path, document: Document) -> int:
    """The number of rounds in which she was asked by the receipt, and no message came; not those after her removal."""
    if "rounds" not in document:
        return 0
    offer = offer_from(document["offer"])
    answered = {(own.round + 1, own.attempt) for own in rounds_of(home, offer.hash)}
    missed = [
        one for one in document["rounds"] if not one["taken"] and not str(one.get("reason", "")).startswith(REMOVED)
    ]
    return sum((one["round"], one.get("attempt", 0)) not in answered for one in missed)


def _round_fault(own: RoundRecord, one: Document, attempt: int) -> str | None:
    number = own.round + 1
    if own.attempt > attempt:
        return f"round {number} was asked for again after the one that it counts"
    if own.received != one["previous"]:
        return f"round {number} started from another model than the one that your computer received"
    return None


def _final_model_fault(home: Path, offer: Offer, document: Document) -> str | None:
    word = participant_folder.read_final(home, offer)
    if word is not None and word["document"]["model"] != document["test"]["model"]:
        return "the model that was tested is not the final one that you signed for"
    return None
