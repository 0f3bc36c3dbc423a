"""Pay, computed from the book and written into it once, however often it is asked for.

One transaction has every client's settlement and her payment that falls due. The rows' keys are unique and what they
say is computed from rows before them, so a second caller finds them there, or writes the same. Looks at `book`,
`job_view`, `payments`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.book import Ledger
from truthfl.ledger.documents import Offer
from truthfl.ledger.entry import Entry, Item
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.payments import due_items


@dataclass(frozen=True)
class Settled:
    """What one client gets: pay in whole minor units, from her reward and the rounds she delivered."""

    client: str
    delivered: int
    asked: int
    reward: float
    pay: int


def settled_of(offer: Offer, found: JobView) -> Settled:
    """From her offer, the test and the rounds in the book."""
    if found.test is None or not found.finished:
        raise InputError(f"job {found.name} has not been trained and tested yet; it cannot be settled.")
    loss = float(found.test.document["loss"])
    delivered = found.delivered[offer.client]
    pay = offer.terms.pay(loss, delivered, offer.rounds)
    return Settled(offer.client, delivered, offer.rounds, offer.terms.reward(loss), pay)


def settlement_document(settled: Settled) -> dict[str, Any]:
    return dict(vars(settled))


def settle(book: Ledger, job: str) -> list[Settled]:
    """Write the settlement, or find it written."""
    found = job_view(job, book.entries(job))
    if not found.contract:
        raise InputError(f"job {job} has no contract yet; it cannot be settled.")
    settled = [settled_of(offer, found) for offer in found.contract]
    items = [Item(job, "settlement", one.client, settlement_document(one)) for one in settled]
    due = due_items(job, {one.client: one.pay for one in settled}, found.contract[0].currency)
    book.append_all([*items, *due])
    return settled


def read_settlement(entry: Entry) -> Settled:
    return Settled(**entry.document)
