"""Signed documents: the operator's offers, answers to them, confirmations of the final model.

A signed document is `{"document": …, "signature": …}`; the inner document names the key that signed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from truthfl.coded_text import coded, untranslated
from truthfl.errors import InputError
from truthfl.ledger.canonical import Document
from truthfl.ledger.signing import (
    AgreementKey,
    PrivateKey,
    agreement_line,
    is_agreement_line,
    is_list_line,
    list_line,
    public_line,
    sign,
    signed_by,
)
from truthfl.ledger.terms import Offer


def signed(key: PrivateKey, document: Document) -> dict[str, Any]:
    """The document with a signature."""
    return {"document": dict(document), "signature": sign(key, document)}


def signed_offer(offer: Offer, key: PrivateKey) -> Offer:
    """The offer with the signature of the operator's key, which must be the key that it names."""
    if public_line(key) != offer.job.operator_key:
        raise InputError(f"the offer to {offer.client.name} names another operator's key than the one to sign with.")
    return replace(offer, signature=sign(key, offer.document()))


def offer_fault(offer: Offer) -> str | None:
    """The fault of an untrusted offer's signature; None if the operator's key that it names signed it."""
    if not offer.signature:
        return coded("fault.offer_unsigned", "the operator did not sign it")
    if not signed_by(str(offer.job.operator_key), offer.document(), offer.signature):
        return coded("fault.offer_signature", "its signature is not of the operator's key that it names")
    return None


def answer(offer: Offer, key: PrivateKey, *, accepted: bool, agreement: AgreementKey | None = None) -> dict[str, Any]:
    """A participant's signed answer to an offer.

    An acceptance has the public parts of their agreement key, and what peers must know of the offer.
    """
    kind = "acceptance" if accepted else "refusal"
    document = {"kind": kind, "job": offer.job.name, "client": offer.client.name, "offer": offer.hash}
    if accepted and agreement is not None:
        document |= {"agreement_key": agreement_line(agreement), "list_key": list_line(agreement)}
        document |= terms_for_peers(offer)
    return signed(key, document | {"public_key": public_line(key)})


def terms_for_peers(offer: Offer) -> dict[str, Any]:
    """The part of an acceptance for peers who share masks: the job's terms, and the place in the sums."""
    client = offer.client
    return {
        "terms": offer.job_digest,
        "index": client.index,
        "weight": client.weight,
        "participation": client.participation,
    }


def final_word(offer: Offer, model: str, key: PrivateKey) -> dict[str, Any]:
    """The client's signed confirmation that they were told this digest of the final model."""
    document = {"kind": "final", "job": offer.job.name, "client": offer.client.name, "offer": offer.hash}
    return signed(key, document | {"model": model, "public_key": public_line(key)})


def final_fault(word: Document, offer: Offer) -> str | None:
    """The first fault of an untrusted confirmation of the final model for this offer; None if it is valid."""
    document = word.get("document")
    if set(word) != {"document", "signature"} or not isinstance(document, Mapping):
        return coded("fault.unsigned", "it is no signed document")
    expected = {
        "kind": "final",
        "job": offer.job.name,
        "client": offer.client.name,
        "offer": offer.hash,
        "public_key": offer.client.public_key,
    }
    if set(document) != {"model", *expected} or any(document[name] != value for name, value in expected.items()):
        return coded("fault.final_other", "it is not their word on the final model of this offer")
    if not isinstance(document["model"], str) or not signed_by(
        offer.client.public_key, document, str(word["signature"])
    ):
        return coded("fault.client_signature", "its signature is not of the offer's public key")
    return None


def answer_fault(signed_answer: Document, offer: Offer) -> str | None:
    """The first fault of an untrusted answer to this offer; None if it is valid."""
    document = signed_answer.get("document")
    if set(signed_answer) != {"document", "signature"} or not isinstance(document, Mapping):
        return coded("fault.unsigned", "it is no signed document")
    expected = {
        "job": offer.job.name,
        "client": offer.client.name,
        "offer": offer.hash,
        "public_key": offer.client.public_key,
    }
    if document.get("kind") not in ("acceptance", "refusal"):
        return coded("fault.answer_kind", "it neither accepts nor refuses")
    has_key = document["kind"] == "acceptance"
    if has_key:
        expected |= terms_for_peers(offer)
    if set(document) != {"kind", *expected, *(["agreement_key", "list_key"] if has_key else [])}:
        return coded("fault.answer_parts", "it does not have the parts of an answer")
    for name, value in expected.items():
        if document.get(name) != value:
            return coded("fault.answer_field", "its {name} is not the offer's", name=untranslated(name))
    if has_key and not (is_agreement_line(document["agreement_key"]) and is_list_line(document["list_key"])):
        return coded("fault.answer_agreement_key", "its agreement_key is no public key of X25519")
    signature = str(signed_answer["signature"])
    if not signed_by(offer.client.public_key, document, signature):
        return coded("fault.client_signature", "its signature is not of the offer's public key")
    return None
