"""Pay, computed from the ledger and written into it once, however often it is asked for.

One transaction has every client's settlement and her payment that falls due. The rows' keys are unique and their
contents are computed from rows before them, so a second caller finds them there, or writes the same. Imports `book`,
`job_view`, `payments`, `terms`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.book import Ledger
from truthfl.ledger.entry import Entry, Item
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.payments import due_items
from truthfl.ledger.terms import Offer


@dataclass(frozen=True)
class Settled:
    """What one client gets: the amount in the job's money, and pay, the same in whole minor units."""

    client: str
    delivered: int
    asked: int
    amount: float
    pay: int


def settled_for(offer: Offer, test_loss: float, delivered: int, asked: int) -> Settled:
    """What this offer pays for this test loss and these rounds."""
    pay = offer.pay(test_loss, delivered, asked)
    amount = offer.amount(test_loss) if offer.is_flat else offer.amount(test_loss, delivered, asked)
    return Settled(offer.client.name, delivered, asked, amount, pay)


def settled_of(offer: Offer, found: JobView) -> Settled:
    """From her offer, the test and the rounds in the ledger."""
    if found.test is None or not found.finished:
        raise InputError(f"job {found.name} has not been trained and tested yet; it cannot be settled.")
    name = offer.client.name
    return settled_for(offer, float(found.test.document["loss"]), found.delivered[name], found.asked[name])


def settlement_document(settled: Settled, offer: Offer) -> dict[str, Any]:
    """As the ledger has it; with offers of the first format, the amount is the reward for all rounds."""
    plain = dict(vars(settled))
    if offer.is_flat:
        plain["reward"] = plain.pop("amount")
    return plain


def settle(book: Ledger, job: str) -> list[Settled]:
    """Write the settlement, or find it written."""
    found = job_view(job, book.entries(job))
    agreed = found.agreement
    if agreed is None:
        raise InputError(f"job {job} has no contract yet; it cannot be settled.")
    settled = [settled_of(offer, found) for offer in agreed.offers]
    items = [
        Item(job, "settlement", one.client, settlement_document(one, offer))
        for one, offer in zip(settled, agreed.offers, strict=True)
    ]
    due = due_items(job, {one.client: one.pay for one in settled}, agreed.terms.currency)
    book.append_all([*items, *due])
    return settled


def read_settlement(entry: Entry) -> Settled:
    plain = dict(entry.document)
    if "reward" in plain:
        plain["amount"] = plain.pop("reward")
    return Settled(**plain)
