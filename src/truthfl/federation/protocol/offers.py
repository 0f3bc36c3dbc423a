"""Offers and the clients' answers; who declines is left out, and the others get new offers. Then they label.

Looks at `enrolment` (who is there), `messages` and the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from flwr.app import Message

from truthfl.errors import InputError
from truthfl.federation.protocol.ask_nodes import ask
from truthfl.federation.protocol.enrolment import ANSWER_WITHIN, LOOK_EVERY, Roster
from truthfl.federation.protocol.messages import LABELS, OFFER, paper_in, question
from truthfl.federation.protocol.notices import tell
from truthfl.ledger.documents import answer_fault
from truthfl.ledger.entry import Item
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.terms import Agreement, Offer

WITHOUT_YOU = "The job goes on without you: you declined its offer, or did not answer in time."
TOO_LATE = "Training has begun; rounds without your labels are not paid."

MakeOffers = Callable[[list[str], int], tuple[dict[str, Any], Agreement]]
"""From names and a version: what the plan rests on, and the terms and offers."""


def agree(roster: Roster, make_offers: MakeOffers) -> Agreement:
    """Offers to everybody until all who were made one accept it."""
    found = job_view(roster.job_name, roster.book.entries(roster.job_name))
    names = [name for name in roster.names if name in roster.described]
    version = 1
    while True:
        offered = _written(found, version)
        if offered is None:
            rests_on, offered = make_offers(names, version)
            plan = rests_on | {"terms": offered.terms.document()}
            roster.book.append_all([Item(roster.job_name, "plan", str(version), plan), *_items(offered)])
        declined = _declined(roster, found, offered.offers)
        if not declined:
            return offered
        out = [roster.node_of[name] for name in declined if name in roster.node_of]
        tell(roster.grid, out, WITHOUT_YOU, over=True)
        names = [offer.client.name for offer in offered.offers if offer.client.name not in declined]
        if not names:
            raise InputError("every client declined the offer; there is nobody to train with.")
        version += 1


def wait_for_labels(roster: Roster, agreed: Agreement, watch: Callable[[int], None]) -> None:
    """Until everybody has labeled, or time is up; `watch` hears how many have."""
    waiting = {offer.client.name: offer for offer in agreed.offers}
    deadline = time.monotonic() + agreed.terms.label_seconds
    while True:
        questions = [
            question(LABELS, roster.node_of[name], {"offer": offer.hash})
            for name, offer in waiting.items()
            if name in roster.node_of
        ]
        name_of = {node: name for name, node in roster.node_of.items()}
        for node, reply in ask(roster.grid, questions, timeout=ANSWER_WITHIN):
            name = name_of.get(node)
            if name in waiting and not reply.has_error() and _said(reply, "ready") is True:
                del waiting[name]
        watch(len(agreed.offers) - len(waiting))
        if not waiting:
            return
        if time.monotonic() >= deadline:
            late = [roster.node_of[name] for name in waiting if name in roster.node_of]
            tell(roster.grid, late, TOO_LATE, over=False)
            return
        time.sleep(min(LOOK_EVERY, max(0.0, deadline - time.monotonic())))
        roster.look()


def _written(found: JobView, version: int) -> Agreement | None:
    """The offers of this version, where the ledger has them."""
    offers = found.offers_of(version)
    return Agreement(found.terms_of(version, offers), offers) if offers else None


def _items(offered: Agreement) -> list[Item]:
    return [Item(offered.terms.name, "offer", offer.key, offer.document()) for offer in offered.offers]


def _declined(roster: Roster, found: JobView, offers: tuple[Offer, ...]) -> set[str]:
    """Ask until everybody has answered or time is up; who has not answered by then has declined."""
    declined = {o.client.name for o in offers if o.key in found.answers and not _accepts(found, o)}
    waiting = {offer.client.name: offer for offer in offers if offer.key not in found.answers}
    deadline = time.monotonic() + roster.server.answer_seconds
    while waiting:
        there = {roster.node_of[name]: offer for name, offer in waiting.items() if name in roster.node_of}
        questions = [question(OFFER, node, offer.document()) for node, offer in there.items()]
        for node, reply in ask(roster.grid, questions, timeout=ANSWER_WITHIN):
            offer = there.get(node)
            if offer is None or offer.client.name not in waiting or reply.has_error():
                continue
            paper = _said(reply, "answer")
            if not isinstance(paper, dict):
                continue
            fault = answer_fault(paper, offer)
            if fault is not None:
                _reject(roster, offer, f"answer: {fault}")
                continue
            roster.book.append(roster.job_name, "answer", offer.key, paper)
            if paper["document"]["kind"] == "refusal":
                declined.add(offer.client.name)
            del waiting[offer.client.name]
        if not waiting or time.monotonic() >= deadline:
            break
        time.sleep(min(LOOK_EVERY, max(0.0, deadline - time.monotonic())))
        roster.look()
    for offer in waiting.values():
        _reject(roster, offer, "no answer in time")
    return declined | set(waiting)


def _accepts(found: JobView, offer: Offer) -> bool:
    return bool(found.answers[offer.key].document["document"]["kind"] == "acceptance")


def _reject(roster: Roster, offer: Offer, reason: str) -> None:
    said = {"stage": "offer", "round": None, "client": offer.client.name, "node": None, "reason": reason}
    roster.book.append(roster.job_name, "rejection", f"offer/{offer.key}/{time.time_ns()}", said)


def _said(reply: Message, field: str) -> Any:
    """What a stranger sent, or None if it cannot be read."""
    try:
        return paper_in(reply).get(field)
    except InputError:
        return None
