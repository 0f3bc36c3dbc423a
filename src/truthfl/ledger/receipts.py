"""A client's receipt, made from the book by the server, checked by her alone. Looks at `job_view`, `chain`, papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, digest
from truthfl.ledger.chain import broken_proof
from truthfl.ledger.commitment import commitment
from truthfl.ledger.documents import answer_fault, signed
from truthfl.ledger.entry import Entry
from truthfl.ledger.job_view import JobView
from truthfl.ledger.settlement import settled_for, settlement_document
from truthfl.ledger.signing import PrivateKey, public_line, signed_by
from truthfl.ledger.terms import Offer, offer_from

PARTS = frozenset(
    ("kind", "job", "client", "offer", "acceptance", "test", "settlement", "chain", "public_key"),
)


def receipt_document(offer: Offer, found: JobView, rows: Sequence[Entry], operator_key: str) -> dict[str, Any]:
    """Everything her pay is computed from, and the book's rows from her offer to her settlement.

    Rows are there as links: with the digest of what they say in place of it, so that their hashes can be recomputed
    without seeing what others were promised and paid. `rows` are the whole book's, in order.
    """
    if found.test is None or offer.client.name not in found.settlements:
        raise InputError(f"job {found.name} is not settled yet; there is no receipt.")
    settlement = found.settlements[offer.client.name]
    first, last = found.entry_of(offer).sequence, settlement.sequence
    return {
        "kind": "receipt",
        "job": offer.job.name,
        "client": offer.client.name,
        "offer": offer.document(),
        "acceptance": found.answer_to(offer).document,
        "test": found.test.document,
        "settlement": settlement.document,
        "chain": [row.link() for row in rows if first <= row.sequence <= last],
        "public_key": operator_key,
    }


def make_receipt(offer: Offer, found: JobView, rows: Sequence[Entry], key: PrivateKey) -> dict[str, Any]:
    return signed(key, receipt_document(offer, found, rows, public_line(key)))


def receipt_fault(paper: Document) -> str | None:
    """What is wrong with a receipt, by itself: signatures, commitment, hash chain, arithmetic. None if nothing is."""
    try:
        return _fault(paper)
    except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
        return f"it is not a receipt ({error})"


def _fault(paper: Document) -> str | None:
    document = paper.get("document")
    if set(paper) != {"document", "signature"} or not isinstance(document, Mapping):
        return "it is no signed document"
    if document.get("kind") != "receipt" or set(document) != PARTS:
        return "it does not have the parts of a receipt"
    offer, test, settlement = offer_from(document["offer"]), document["test"], document["settlement"]
    if document["public_key"] != offer.job.operator_key:
        return "it is signed with another key than the one that the offer names"
    if not signed_by(offer.job.operator_key, document, str(paper["signature"])):
        return "its signature is not of the operator's key, or something in it was changed"
    if (document["job"], document["client"]) != (offer.job.name, offer.client.name):
        return "it is for another job or client than its offer"
    wrong = answer_fault(document["acceptance"], offer)
    if wrong is not None:
        return f"its acceptance does not hold: {wrong}"
    if commitment(test["test_set"], test["samples"], test["secret"]) != offer.job.commitment:
        return "test set, number of draws and secret are not those the server committed itself to in the offer"
    asked, rounds = settlement["asked"], offer.job.rounds
    if settlement["client"] != offer.client.name or (asked != rounds and offer.client.participation == 1):
        return "its settlement is for other rounds or another client than the offer"
    right = settled_for(offer, test["loss"], settlement["delivered"], asked)
    if dict(settlement) != settlement_document(right, offer):
        return f"the pay is {settlement['pay']}; by the offer's formula it is {right.pay}"
    return _chain_fault(document, offer)


def _chain_fault(document: Document, offer: Offer) -> str | None:
    """Whether the links hold together and hold these very papers."""
    links = document["chain"]
    broken = broken_proof(links)
    if broken is not None:
        return f"its chain is broken: {broken.what}"
    wanted = (
        ("offer", offer.key, document["offer"]),
        ("answer", offer.key, document["acceptance"]),
        ("test", "test", document["test"]),
        ("settlement", offer.client.name, document["settlement"]),
    )
    for kind, key, paper in wanted:
        rows = [row for row in links if (row["job"], row["kind"], row["key"]) == (offer.job.name, kind, key)]
        if len(rows) != 1 or rows[0]["payload"] != digest(paper):
            return f"its {kind} is not the one in the chain"
    return None
