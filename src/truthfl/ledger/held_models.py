"""Solo models that are held: those like a known model, and those that are too good.

A "hold" row comes before the audition's result. A known model has no solo loss and is not paid. On a model that is too
good the operator decides by a signed command. If they do not refuse it in time, its pay is settled like any other. It
is not paid out before they accept it.
"""

from __future__ import annotations

from collections.abc import Iterator

from truthfl.coded_text import coded
from truthfl.ledger.canonical import Document
from truthfl.ledger.commands import REFUSE, Command
from truthfl.ledger.entry import Entry, Fault, fault_at
from truthfl.ledger.evidence import is_too_good, level_shifts
from truthfl.ledger.job_view import JobView
from truthfl.ledger.terms import Offer
from truthfl.texts import LONGEST_NAME, plain

FIELDS = frozenset(("client", "offer", "model", "solo_loss", "level_shift", "known"))
REFUSED = "The operator refused it"  # how the reason of a refused model begins


def known_model(known: Document) -> str:
    """The earlier model that a known one is like, in words."""
    return f"{'a solo' if known['solo'] else 'the joint'} model of the earlier job {known['job']}"


def decision_on(view: JobView, name: str, before: int | None = None) -> tuple[Entry, Command] | None:
    """The operator's first decision on a held model, and its row; None if there is none yet.

    before   the sequence number before which it must have been made
    """
    held = view.holds.get(name)
    if held is None or held.document["known"] is not None:
        return None
    for entry, command in view.state.decisions.get(name, ()):
        if entry.sequence > held.sequence and (before is None or entry.sequence < before):
            return entry, command
    return None


def waiting_names(view: JobView) -> list[str]:
    """The clients on whose models the operator can decide now."""
    return [
        name
        for name, entry in view.holds.items()
        if entry.document["known"] is None and name not in view.auditions and decision_on(view, name) is None
    ]


def unseen_names(view: JobView) -> list[str]:
    """The clients whose too good models are settled as offered and still await the operator's decision."""
    return [
        name
        for name, entry in view.holds.items()
        if entry.document["known"] is None and name in view.auditions and decision_on(view, name) is None
    ]


def unseen_sentence(job: str, name: str) -> str:
    """The sentence for the operator about one of them."""
    who = plain(name, LONGEST_NAME)
    return (
        f"Nobody decided on the solo model of {who} in job {plain(job)}, which is far better than honest ones "
        f"usually are: look before you pay. The payment is left out until you say truthfl accept {who}."
    )


def refusal_of(view: JobView, name: str) -> Entry | None:
    """The row of the command by which a held model was refused before its result was written; None if it was not."""
    result = view.auditions.get(name)
    decided = decision_on(view, name, None if result is None else result.sequence)
    return decided[0] if decided is not None and decided[1].kind == REFUSE else None


def hold_faults(view: JobView) -> Iterator[Fault]:
    """Faults of held models: only what is too good or known is held, all of it is, and pay follows the decision."""
    if view.agreement is None or not view.agreement.terms.has_solo_models:
        for entry in view.holds.values():
            yield fault_at(entry, "the client has no contract with an audition")
        return
    offers = {offer.client.name: offer for offer in view.agreement.offers}
    for name, entry in view.holds.items():
        fault = _form_fault(view, entry, offers.get(name))
        if fault is not None:
            yield fault_at(entry, fault)
            return
    if set(view.auditions) != set(offers):
        return
    losses = {name: entry.document["solo_loss"] for name, entry in view.auditions.items()}
    for name, entry in view.holds.items():
        losses[name] = entry.document["solo_loss"] if entry.document["known"] is None else None
    shifts = level_shifts(tuple(offers.values()), losses)
    for name, entry in view.auditions.items():
        held, document = view.holds.get(name), entry.document
        known = held is not None and held.document["known"] is not None
        if not known and is_too_good(offers[name], losses[name], shifts[name]) != (held is not None):
            yield fault_at(held or entry, "whether the operator was to look at the model is not what the offer says")
        if held is None:
            if document["model"] is not None and document["solo_loss"] is None:
                yield fault_at(entry, "it has a model and no loss")
            continue
        if not known and held.document["level_shift"] != shifts[name]:
            yield fault_at(
                held, f"the level's shift is {held.document['level_shift']}; recomputed it is {shifts[name]}"
            )
        if held.sequence > entry.sequence or held.document["model"] != document["model"]:
            yield fault_at(held, "it is of another model than the audition's, or comes after it")
        counts = None if known or refusal_of(view, name) is not None else held.document["solo_loss"]
        if document["solo_loss"] != counts:
            yield fault_at(entry, "its loss is not what was held, and the operator did not refuse it before")


def _form_fault(view: JobView, entry: Entry, offer: Offer | None) -> str | None:
    document = entry.document
    if offer is None or set(document) != FIELDS or (document["client"], document["offer"]) != (entry.key, offer.hash):
        return "it is of another client or offer, or does not have the parts of a held model"
    known = document["known"]
    if known is not None and set(known) != {"job", "likeness", "solo"}:
        return "it does not say which earlier model it is like"
    committed = view.commitments.get(entry.key)
    if committed is None or committed.sequence > entry.sequence:
        return "its model was not committed to before"
    return None


def receipt_hold_fault(document: Document, offer: Offer) -> str | None:
    """The fault of a receipt's solo model without a loss: it must be known, or too good and refused by a command."""
    held, result = document["audition"]["held"], document["audition"]["result"]
    refused = any(one["document"]["kind"] == REFUSE for one in document.get("commands", {}).values())
    if held is None:
        sound = not refused and (result["model"] is None or result["solo_loss"] is not None)
    else:
        own = (offer.client.name, offer.hash, result["model"])
        sound = set(held) == FIELDS and (held["client"], held["offer"], held["model"]) == own
        known = sound and held["known"] is not None
        sound = sound and (known or is_too_good(offer, held["solo_loss"], held["level_shift"]))
        sound = sound and result["solo_loss"] == (None if known or refused else held["solo_loss"])
    words = "its solo model is not paid, and it has neither an earlier model that it is like nor the operator's command"
    return None if sound else coded("fault.held", words)
