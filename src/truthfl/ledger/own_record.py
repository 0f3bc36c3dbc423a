"""A receipt compared with what the participant's computer kept: the audition, its reports, and the final model."""

from __future__ import annotations

from pathlib import Path

from truthfl.coded_text import coded, english, listed
from truthfl.ledger import participant_folder
from truthfl.ledger.audition_record import audition_record_fault
from truthfl.ledger.canonical import Document
from truthfl.ledger.command_state import REMOVED
from truthfl.ledger.early_end import trained_rounds, was_ended
from truthfl.ledger.round_record import RoundRecord, rounds_of
from truthfl.ledger.round_terms import NOT_CONNECTED, NOT_IN_TIME, list_digest
from truthfl.ledger.taken_reports import taken_rounds
from truthfl.ledger.terms import Offer, offer_from

MOST_NAMED = 5  # rounds in a sentence
LONGEST_REASON = 200
FEW_LATE, LATE_SHARE = 3, 0.02  # so many reports of a job, or this share of them, may be late without a fault
LATE = (NOT_IN_TIME, NOT_CONNECTED)
ENDED_BEFORE = coded("fault.ended_before", "the job was ended before it")
NOT_ASKED = coded("fault.not_asked", "you were not asked")


def record_fault(home: Path, document: Document) -> str | None:
    """How a receipt's document differs from what her computer sent and signed; None if it does not."""
    offer = offer_from(document["offer"])
    fault = audition_record_fault(home, offer, document)
    if fault is not None:
        return fault
    stated = {one["round"]: one for one in document["rounds"]}
    uncounted: list[tuple[int, str]] = []
    excused = {report_under_way(home, document), *late_rounds(home, document)}
    for own in rounds_of(home, offer.hash):
        one = stated.get(own.round + 1)
        if one is None:
            if own.round + 1 not in excused:
                uncounted.append((own.round + 1, ENDED_BEFORE if _after_end(document, own) else NOT_ASKED))
            continue
        fault = _round_fault(own, one, masked=offer.job.masked)
        if fault is not None:
            return fault
        if one["taken"] is not True and own.round + 1 not in excused:
            uncounted.append((own.round + 1, english(str(one.get("reason"))[:LONGEST_REASON])))
    if uncounted:
        named: list[str] = [
            coded("fault.uncounted_round", "round {round}: {reason}", round=number, reason=reason)
            for number, reason in uncounted[:MOST_NAMED]
        ]
        if len(uncounted) > MOST_NAMED:
            named.append(coded("fault.uncounted_more", "and {number} more", number=len(uncounted) - MOST_NAMED))
        return coded(
            "fault.uncounted",
            "your computer sent {number} reports that are not counted ({rounds})",
            number=len(uncounted),
            rounds=listed(named),
        )
    return _final_model_fault(home, offer, document)


def report_under_way(home: Path, document: Document) -> int | None:
    """The round whose report was on its way when the operator removed its sender or ended the job; None if none was.

    It can only be the last report that was sent, and the receipt has the operator's signed command for it.
    """
    sent = rounds_of(home, offer_from(document["offer"]).hash)
    if not sent:
        return None
    stated = {one["round"]: one for one in document["rounds"]}.get(sent[-1].round + 1)
    if stated is None:
        return sent[-1].round + 1 if _after_end(document, sent[-1]) else None
    removed = stated["taken"] is not True and str(stated.get("reason", "")).startswith(REMOVED)
    return sent[-1].round + 1 if removed else None


def late_rounds(home: Path, document: Document) -> tuple[int, ...]:
    """The rounds whose report came too late, or not at all, by the receipt; none if they are more than a few.

    A report is written down before it is sent. Where the server said that it took it, the report was in time.
    """
    offer = offer_from(document["offer"])
    sent, taken = rounds_of(home, offer.hash), taken_rounds(home, offer.hash)
    missed = {one["round"] for one in document["rounds"] if not one["taken"] and one.get("reason") in LATE}
    late = tuple(own.round + 1 for own in sent if own.round + 1 in missed and own.round not in taken)
    return late if len(late) <= max(FEW_LATE, LATE_SHARE * len(sent)) else ()


def _after_end(document: Document, own: RoundRecord) -> bool:
    return was_ended(document) and own.round >= trained_rounds(document)


def unasked_rounds(home: Path, document: Document) -> int:
    """The number of rounds in which she was asked by the receipt, and no message came; not those after her removal."""
    offer = offer_from(document["offer"])
    answered = {own.round + 1 for own in rounds_of(home, offer.hash)}
    missed = [
        one for one in document["rounds"] if not one["taken"] and not str(one.get("reason", "")).startswith(REMOVED)
    ]
    return sum(one["round"] not in answered for one in missed)


def _round_fault(own: RoundRecord, one: Document, *, masked: bool) -> str | None:
    number = own.round + 1
    if own.received != one["previous"]:
        return coded(
            "fault.round_model",
            "round {round} started from another model than the one that your computer received",
            round=number,
        )
    in_sum = masked and one["taken"] is True and "refused" not in one
    if in_sum and one.get("missing") != list_digest(own.missing):
        return coded(
            "fault.round_list",
            "other people are missing in round {round} than on the list that your computer signed",
            round=number,
        )
    return None


def _final_model_fault(home: Path, offer: Offer, document: Document) -> str | None:
    word = participant_folder.read_final(home, offer)
    if word is not None and word["document"]["model"] != document["test"]["model"]:
        return coded("fault.final_model", "the model that was tested is not the final one that you signed for")
    return None
