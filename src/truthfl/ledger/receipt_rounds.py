"""The rounds in a receipt: those in which the client was asked, with their models, and her word on the final model.

With them she sees which of her reports were counted, and that the model that was tested is the one that was trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from truthfl.coded_text import coded, english
from truthfl.ledger.canonical import Document
from truthfl.ledger.documents import final_fault
from truthfl.ledger.early_end import lost_round, trained_rounds, was_ended
from truthfl.ledger.job_view import JobView
from truthfl.ledger.round_terms import loss_rise
from truthfl.ledger.terms import Offer

FROM_THE_LEDGER = ("round", "previous", "model", "refused")  # fields of a round's entry in a receipt
FIELDS = frozenset((*FROM_THE_LEDGER, "taken", "reason", "missing"))


def rounds_part(offer: Offer, view: JobView) -> dict[str, Any]:
    """The fields `rounds` and `final` of a receipt.

    rounds   those in which she was asked, each with whether her report was taken, or the reason why not; of a masked
             sum the digest of the list of who is missing, which her computer signed
    final    her word on the final model; None if she did not give it
    """
    name = offer.client.name
    rounds = []
    for number, (entry, asked, missing) in enumerate(view.round_sets):
        if name not in asked:
            continue
        one = {field: entry.document[field] for field in FROM_THE_LEDGER if field in entry.document}
        one["taken"] = name not in missing
        if offer.job.masked and "refused" not in one:
            one["missing"] = view.missing_digests[number]
        if name in missing:
            one["reason"] = view.round_refusals.get((name, entry.document["round"]), "no reason is recorded")
        rounds.append(one)
    final = view.finals.get(name)
    return {"rounds": rounds, "final": None if final is None else final.document}


def rounds_fault(document: Document, offer: Offer) -> str | None:
    """The first fault of a receipt's rounds and of her word on the final model; None if they agree with the rest."""
    rounds, settlement, tested = document["rounds"], document["settlement"], document["test"]["model"]
    if not all(_is_round(one) for one in rounds):
        return coded("fault.rounds_parts", "its rounds do not have the parts of rounds")
    trained = trained_rounds(document) if was_ended(document) else offer.job.rounds
    numbers = [one["round"] for one in rounds]
    if numbers != sorted(set(numbers)) or (numbers and not 1 <= numbers[0] <= numbers[-1] <= trained):
        return coded("fault.rounds_order", "its rounds are not those of the offer, in order")
    counted = sum(one["taken"] for one in rounds)
    if (len(rounds), counted) != (_listed_rounds(document, offer, trained), settlement["delivered"]):
        return coded(
            "fault.rounds_counted",
            "its settlement counts other rounds than the {counted} of {listed} that it lists",
            counted=counted,
            listed=len(rounds),
        )
    if offer.job.loss_by_rounds and len(rounds) == trained:
        changed = sum(one["previous"] != one["model"] for one in rounds)
        if settlement["loss_rise"] != loss_rise(offer.job.loss_by_rounds, offer.job.rounds, changed):
            return coded(
                "fault.loss_rise",
                "its settlement expects another loss than of {number} rounds that changed the model",
                number=changed,
            )
    return _model_fault(rounds, tested, trained, lost_round(document)) or _final_word_fault(
        document["final"], tested, offer
    )


def had_no_rounds(document: Document, offer: Offer) -> bool:
    """Whether a receipt says that too few passed the audition for masked rounds, and none took place.

    The operator's word is enough: her computer knows whether it sent a report, and for none the operator has no use.
    """
    return offer.job.masked and offer.job.has_audition and document["settlement"]["asked"] == 0


def _listed_rounds(document: Document, offer: Offer, trained: int) -> int:
    """How many rounds a receipt must list: those in which she was asked; in a job that was ended, fewer than that."""
    settlement = document["settlement"]
    asked = int(settlement["asked"])
    if not was_ended(document) or settlement.get("passed") is False:
        return asked
    return trained if offer.client.participation == 1 else min(len(document["rounds"]), asked)


def _is_round(one: Document) -> bool:
    required = {"round", "previous", "model", "taken"} | (set() if one["taken"] is True else {"reason"})
    return required <= set(one) <= FIELDS and type(one["round"]) is int and type(one["taken"]) is bool


def _model_fault(rounds: Sequence[Document], tested: str, trained: int, lost: int | None) -> str | None:
    """Fault of the models: each round starts from the one before, and the last one that there is is tested."""
    for before, after in pairwise(rounds):
        if after["round"] == before["round"] + 1 and after["previous"] != before["model"]:
            return coded(
                "fault.round_start",
                "round {round} starts from another model than the one after the round before",
                round=after["round"],
            )
    if lost is not None:
        last = [one["previous"] for one in rounds if one["round"] == lost]
        last += [one["model"] for one in rounds if one["round"] == lost - 1]
        if last and {*last} != {tested}:
            return coded("fault.tested_other_lost", "another model was tested than the last one that was not lost")
    elif rounds and rounds[-1]["round"] == trained and rounds[-1]["model"] != tested:
        return coded("fault.tested_other", "another model was tested than the last round's")
    return None


def _final_word_fault(word: Document | None, tested: str, offer: Offer) -> str | None:
    if word is None:
        return None
    fault = final_fault(word, offer)
    if fault is not None:
        return coded("fault.final_word", "her word on the final model does not hold: {fault}", fault=english(fault))
    if word["document"]["model"] == tested:
        return None
    return coded("fault.tested_unsigned", "another model was tested than the one she signed for")
