"""Receipts: the server makes them from the ledger, and a client can check hers without the ledger.

Imports `canonical`, `chain`, `commitment`, `documents`, `entry`, `job_view`, `settlement`, `signing`, `terms`.
"""

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

FIELDS = frozenset(
    ("kind", "job", "client", "offer", "acceptance", "test", "settlement", "chain", "public_key"),
)


def receipt_document(offer: Offer, view: JobView, entries: Sequence[Entry], operator_key: str) -> dict[str, Any]:
    """The unsigned receipt: all values that pay depends on, and the links from the client's offer to her settlement.

    A link has the digest of the payload instead of the payload, so that the hash chain can be checked without seeing
    other clients' offers and pay.

    entries   all entries of the ledger, in order
    """
    if view.test is None or offer.client.name not in view.settlements:
        raise InputError(f"job {view.name} is not settled yet; there is no receipt.")
    settlement = view.settlements[offer.client.name]
    first, last = view.entry_of(offer).sequence, settlement.sequence
    return {
        "kind": "receipt",
        "job": offer.job.name,
        "client": offer.client.name,
        "offer": offer.document(),
        "acceptance": view.answer_to(offer).document,
        "test": view.test.document,
        "settlement": settlement.document,
        "chain": [entry.link() for entry in entries if first <= entry.sequence <= last],
        "public_key": operator_key,
    }


def make_receipt(offer: Offer, view: JobView, entries: Sequence[Entry], key: PrivateKey) -> dict[str, Any]:
    """The receipt, signed with the operator's key."""
    return signed(key, receipt_document(offer, view, entries, public_line(key)))


def receipt_fault(receipt: Document) -> str | None:
    """The first fault in a signed receipt's signatures, commitment, pay or hash chain; None if it is valid."""
    try:
        return _fault(receipt)
    except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
        return f"it is not a receipt ({error})"


def _fault(receipt: Document) -> str | None:
    document = receipt.get("document")
    if set(receipt) != {"document", "signature"} or not isinstance(document, Mapping):
        return "it is no signed document"
    if document.get("kind") != "receipt" or set(document) != FIELDS:
        return "it does not have the parts of a receipt"
    offer, test, settlement = offer_from(document["offer"]), document["test"], document["settlement"]
    if document["public_key"] != offer.job.operator_key:
        return "it is signed with another key than the one that the offer names"
    if not signed_by(offer.job.operator_key, document, str(receipt["signature"])):
        return "its signature is not of the operator's key, or something in it was changed"
    if (document["job"], document["client"]) != (offer.job.name, offer.client.name):
        return "it is for another job or client than its offer"
    fault = answer_fault(document["acceptance"], offer)
    if fault is not None:
        return f"its acceptance does not hold: {fault}"
    if commitment(test["test_set"], test["samples"], test["secret"]) != offer.job.commitment:
        return "test set, number of draws and secret are not those the server committed itself to in the offer"
    asked, rounds = settlement["asked"], offer.job.rounds
    if settlement["client"] != offer.client.name or (asked != rounds and offer.client.participation == 1):
        return "its settlement is for other rounds or another client than the offer"
    recomputed = settled_for(offer, test["loss"], settlement["delivered"], asked)
    if dict(settlement) != settlement_document(recomputed, offer):
        return f"the pay is {settlement['pay']}; by the offer's formula it is {recomputed.pay}"
    return _chain_fault(document, offer)


def _chain_fault(document: Document, offer: Offer) -> str | None:
    """Fault of the receipt's links: the chain must be valid and contain the receipt's own documents."""
    links = document["chain"]
    broken = broken_proof(links)
    if broken is not None:
        return f"its chain is broken: {broken.message}"
    expected = (
        ("offer", offer.key, document["offer"]),
        ("answer", offer.key, document["acceptance"]),
        ("test", "test", document["test"]),
        ("settlement", offer.client.name, document["settlement"]),
    )
    for kind, key, payload in expected:
        matching = [link for link in links if (link["job"], link["kind"], link["key"]) == (offer.job.name, kind, key)]
        if len(matching) != 1 or matching[0]["payload"] != digest(payload):
            return f"its {kind} is not the one in the chain"
    return None
