"""Signed documents, and a client's answer to an offer.

A signed document is `{"document": …, "signature": …}`; the inner document says whose key signed it. Imports
`canonical`, `signing`, `terms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from truthfl.ledger.canonical import Document
from truthfl.ledger.signing import PrivateKey, public_line, sign, signed_by
from truthfl.ledger.terms import Offer


def signed(key: PrivateKey, document: Document) -> dict[str, Any]:
    return {"document": dict(document), "signature": sign(key, document)}


def answer(offer: Offer, key: PrivateKey, *, accepted: bool) -> dict[str, Any]:
    """Her signed answer to an offer."""
    said = "acceptance" if accepted else "refusal"
    document = {"kind": said, "job": offer.job.name, "client": offer.client.name, "offer": offer.hash}
    return signed(key, document | {"public_key": public_line(key)})


def answer_fault(paper: Document, offer: Offer) -> str | None:
    """What is wrong with an answer to this offer; None if nothing is."""
    document = paper.get("document")
    if set(paper) != {"document", "signature"} or not isinstance(document, Mapping):
        return "it is no signed document"
    wanted = {
        "job": offer.job.name,
        "client": offer.client.name,
        "offer": offer.hash,
        "public_key": offer.client.public_key,
    }
    if document.get("kind") not in ("acceptance", "refusal"):
        return "it neither accepts nor refuses"
    if set(document) != {"kind", *wanted}:
        return "it does not have the parts of an answer"
    for part, value in wanted.items():
        if document.get(part) != value:
            return f"its {part} is not the offer's"
    if not signed_by(offer.client.public_key, document, str(paper["signature"])):
        return "its signature is not of the offer's public key"
    return None
