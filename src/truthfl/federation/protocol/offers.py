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
from truthfl.ledger.documents import Offer, answer_fault, offer_from
from truthfl.ledger.entry import Item
from truthfl.ledger.job_view import JobView, job_view, offer_key

WITHOUT_YOU = "The job goes on without you: you declined its offer, or did not answer in time."
TOO_LATE = "Training has begun; rounds without your labels are not paid."

MakeOffers = Callable[[list[str], int], tuple[dict[str, Any], list[Offer]]]
"""From names and a version: what the plan rests on, and the offers."""


def agree(roster: Roster, make_offers: MakeOffers) -> list[Offer]:
    """Offers to everybody until all who were made one accept it."""
    found = job_view(roster.job_name, roster.book.entries(roster.job_name))
    names = [name for name in roster.names if name in roster.described]
    version = 1
    while True:
        offers = _written(found, version)
        if not offers:
            rests_on, offers = make_offers(names, version)
            roster.book.append_all([Item(roster.job_name, "plan", str(version), rests_on), *_items(offers)])
        declined = _declined(roster, found, offers)
        if not declined:
            return offers
        out = [roster.node_of[name] for name in declined if name in roster.node_of]
        tell(roster.grid, out, WITHOUT_YOU, over=True)
        names = [offer.client for offer in offers if offer.client not in declined]
        if not names:
            raise InputError("every client declined the offer; there is nobody to train with.")
        version += 1


def wait_for_labels(roster: Roster, offers: list[Offer], watch: Callable[[int], None]) -> None:
    """Until everybody has labeled, or time is up; `watch` hears how many have."""
    waiting = {offer.client: offer for offer in offers}
    deadline = time.monotonic() + roster.server.label_seconds
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
        watch(len(offers) - len(waiting))
        if not waiting:
            return
        if time.monotonic() >= deadline:
            late = [roster.node_of[name] for name in waiting if name in roster.node_of]
            tell(roster.grid, late, TOO_LATE, over=False)
            return
        time.sleep(min(LOOK_EVERY, max(0.0, deadline - time.monotonic())))
        roster.look()


def _written(found: JobView, version: int) -> list[Offer]:
    papers = [entry.document for key, entry in found.offers.items() if key.startswith(f"{version}/")]
    return sorted((offer_from(paper) for paper in papers), key=lambda offer: offer.index)


def _items(offers: list[Offer]) -> list[Item]:
    return [Item(offer.job, "offer", offer_key(offer), offer.document()) for offer in offers]


def _declined(roster: Roster, found: JobView, offers: list[Offer]) -> set[str]:
    """Ask until everybody has answered or time is up; who has not answered by then has declined."""
    declined = {o.client for o in offers if offer_key(o) in found.answers and not _accepts(found, o)}
    waiting = {offer.client: offer for offer in offers if offer_key(offer) not in found.answers}
    deadline = time.monotonic() + roster.server.answer_seconds
    while waiting:
        there = {roster.node_of[name]: offer for name, offer in waiting.items() if name in roster.node_of}
        questions = [question(OFFER, node, offer.document()) for node, offer in there.items()]
        for node, reply in ask(roster.grid, questions, timeout=ANSWER_WITHIN):
            offer = there.get(node)
            if offer is None or offer.client not in waiting or reply.has_error():
                continue
            paper = _said(reply, "answer")
            if not isinstance(paper, dict):
                continue
            fault = answer_fault(paper, offer)
            if fault is not None:
                _reject(roster, offer, f"answer: {fault}")
                continue
            roster.book.append(roster.job_name, "answer", offer_key(offer), paper)
            if paper["document"]["kind"] == "refusal":
                declined.add(offer.client)
            del waiting[offer.client]
        if not waiting or time.monotonic() >= deadline:
            break
        time.sleep(min(LOOK_EVERY, max(0.0, deadline - time.monotonic())))
        roster.look()
    for offer in waiting.values():
        _reject(roster, offer, "no answer in time")
    return declined | set(waiting)


def _accepts(found: JobView, offer: Offer) -> bool:
    return bool(found.answers[offer_key(offer)].document["document"]["kind"] == "acceptance")


def _reject(roster: Roster, offer: Offer, reason: str) -> None:
    said = {"stage": "offer", "round": None, "client": offer.client, "node": None, "reason": reason}
    roster.book.append(roster.job_name, "rejection", f"offer/{offer_key(offer)}/{time.time_ns()}", said)


def _said(reply: Message, field: str) -> Any:
    """What a stranger sent, or None if it cannot be read."""
    try:
        return paper_in(reply).get(field)
    except InputError:
        return None
