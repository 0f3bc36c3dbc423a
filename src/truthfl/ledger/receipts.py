"""Receipts: the server makes them from the ledger, and a client can check hers without the ledger.

Imports `canonical`, `chain`, `commitment`, `documents`, `early_end`, `entry`, `job_view`, `money`, `receipt_rounds`,
`settlement`, `signing`, `solo_evidence`, `terms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, canonical_bytes
from truthfl.ledger.chain import broken_proof
from truthfl.ledger.commitment import commitment
from truthfl.ledger.documents import answer_fault, recorded_offer_fault, signed
from truthfl.ledger.early_end import commands_fault, commands_part, counted_loss, receipt_commands, was_ended
from truthfl.ledger.entry import Entry, payload_digest
from truthfl.ledger.job_view import JobView
from truthfl.ledger.money import minor_money
from truthfl.ledger.receipt_rounds import rounds_fault, rounds_part
from truthfl.ledger.settlement import settled_for, settlement_document
from truthfl.ledger.signing import PrivateKey, public_line, signed_by
from truthfl.ledger.solo_evidence import SoloEvidence
from truthfl.ledger.terms import Offer, offer_from

FIELDS = frozenset(
    ("kind", "job", "client", "offer", "acceptance", "test", "settlement", "chain", "public_key"),
)
OPTIONAL_FIELDS = frozenset(("audition", "commands", "salts", "rounds", "final"))


def receipt_document(offer: Offer, view: JobView, entries: Sequence[Entry], operator_key: str) -> dict[str, Any]:
    """The unsigned receipt: all values that pay depends on, and the links from the client's offer to her settlement.

    A link has the salted digest of the payload instead of the payload, so that the hash chain can be checked without
    learning other clients' offers and pay. `salts` has those of her own entries, by sequence number, as text. A command
    that ended the job before her offer was written, which the server then noticed late, comes first.

    entries   all entries of the ledger, in order
    """
    first, last = chain_range(offer, view)
    links = [entry.link() for entry in entries if first <= entry.sequence <= last]
    return receipt_without_chain(offer, view, operator_key) | {"chain": links}


def chain_range(offer: Offer, view: JobView) -> tuple[int, int]:
    """The sequence numbers of the first and the last link of a receipt; an error if the job is not settled."""
    if view.test is None or offer.client.name not in view.settlements:
        raise InputError(f"job {view.name} is not settled yet; there is no receipt.")
    last = view.settlements[offer.client.name].sequence
    commands = receipt_commands(offer, view, last)
    return min(view.entry_of(offer).sequence, *(entry.sequence for entry in commands), last), last


def receipt_without_chain(offer: Offer, view: JobView, operator_key: str) -> dict[str, Any]:
    """The unsigned receipt without its links; the job is settled."""
    assert view.test is not None
    commands = receipt_commands(offer, view, view.settlements[offer.client.name].sequence)
    audition = {"audition": _audition_part(offer, view)} if offer.job.has_audition else {}
    return (
        audition
        | _salts_part(offer, view, commands)
        | commands_part(commands)
        | rounds_part(offer, view)
        | {
            "kind": "receipt",
            "job": offer.job.name,
            "client": offer.client.name,
            "offer": offer.envelope(),
            "acceptance": view.answer_to(offer).document,
            "test": view.test.document,
            "settlement": view.settlements[offer.client.name].document,
            "public_key": operator_key,
        }
    )


def _audition_part(offer: Offer, view: JobView) -> dict[str, Any]:
    """Her commitment, None if there is none, and the result of her audition, as they stand in the ledger."""
    commitment_entry = view.commitments.get(offer.client.name)
    return {
        "commitment": None if commitment_entry is None else commitment_entry.document,
        "result": view.auditions[offer.client.name].document,
    }


def _salts_part(offer: Offer, view: JobView, commands: Sequence[Entry]) -> dict[str, Any]:
    """The salts of the entries whose payloads are in her receipt; no part if none has a salt."""
    name = offer.client.name
    entries = [
        view.entry_of(offer),
        view.answer_to(offer),
        view.commitments.get(name),
        view.auditions.get(name),
        view.finals.get(name),
        view.test,
        view.settlements[name],
        *commands,
    ]
    salts = {str(entry.sequence): entry.salt for entry in entries if entry is not None and entry.salt}
    return {"salts": salts} if salts else {}


def make_receipt(offer: Offer, view: JobView, entries: Sequence[Entry], key: PrivateKey) -> dict[str, Any]:
    """The receipt, signed with the operator's key."""
    return signed(key, receipt_document(offer, view, entries, public_line(key)))


def recorded_receipt(offer: Offer, view: JobView, entries: Sequence[Entry]) -> dict[str, Any]:
    """The receipt again, with the signature that the ledger has; no key is needed."""
    entry = view.receipts.get(offer.client.name)
    if entry is None:
        raise InputError(f"job {view.name} has no receipt of {offer.client.name} yet; it is made when pay is settled.")
    document = receipt_document(offer, view, entries, offer.job.operator_key)
    require_recorded(canonical_bytes(document), entry.document)
    return {"document": document, "signature": entry.document["signature"]}


def require_recorded(document: bytes, row: Document) -> None:
    """Raise InputError unless a receipt with these canonical bytes is the one of this row of the ledger."""
    if sha256(document).hexdigest() != row["digest"]:
        raise InputError(
            f"the receipt of {row['client']} is not the one that was signed; truthfl ledger check says where."
        )


def receipt_fault(receipt: Document) -> str | None:
    """The first fault in a signed receipt's signatures, commitment, pay or hash chain; None if it is valid."""
    try:
        return _fault(receipt)
    except Exception as error:  # it may hold anything, and so may what is computed from it
        return f"it is not a receipt ({type(error).__name__}: {error})"


def _fault(receipt: Document) -> str | None:
    document = receipt.get("document")
    if set(receipt) != {"document", "signature"} or not isinstance(document, Mapping):
        return "it is no signed document"
    if document.get("kind") != "receipt" or not FIELDS <= set(document) <= FIELDS | OPTIONAL_FIELDS:
        return "it does not have the parts of a receipt"
    offer, test, settlement = offer_from(document["offer"]), document["test"], document["settlement"]
    if ("audition" in document) != offer.job.has_audition:
        return "it has an audition and its offer none, or the other way round"
    if document["public_key"] != offer.job.operator_key:
        return "it is signed with another key than the one that the offer names"
    signature, salts = str(receipt["signature"]), document.get("salts", {})
    if not signed_by(offer.job.operator_key, document, signature, of_old_entry=not salts):
        return "its signature is not of the operator's key, or something in it was changed"
    if (document["job"], document["client"]) != (offer.job.name, offer.client.name):
        return "it is for another job or client than its offer"
    fault = recorded_offer_fault(offer)
    if fault is not None:
        return f"its offer does not hold: {fault}"
    answered = [str(link["sequence"]) for link in document["chain"] if link["kind"] == "answer"]
    fault = answer_fault(document["acceptance"], offer, of_old_entry=not set(answered) & set(salts))
    if fault is not None:
        return f"its acceptance does not hold: {fault}"
    if commitment(test["test_set"], test["samples"], test["secret"]) != offer.job.commitment:
        return "test set, number of draws and secret are not those the server committed itself to in the offer"
    asked, stopped = settlement["asked"], settlement.get("passed") is False
    expected = 0 if stopped else offer.job.rounds if offer.client.participation == 1 else asked
    if (settlement["client"], asked) != (offer.client.name, expected):
        return "its settlement is for other rounds or another client than the offer"
    fault = commands_fault(document, offer) or rounds_fault(document, offer)
    if fault is not None:
        return fault
    evidence = None
    if offer.job.has_audition:
        fault = _audition_fault(document["audition"], settlement, offer)
        if fault is not None:
            return fault
        result = document["audition"]["result"]
        rise = settlement.get("loss_rise", 0.0)
        evidence = SoloEvidence(result["solo_loss"], result["level_shift"], settlement["present_labels"], rise)
    loss = counted_loss(offer, test["loss"], ended=was_ended(document))
    recomputed = settled_for(offer, loss, settlement["delivered"], asked, evidence)
    if dict(settlement) != settlement_document(recomputed, offer):
        units, currency = offer.job.minor_units, offer.job.currency
        pay = minor_money(int(settlement["pay"]), units, currency)
        return f"the pay is {pay}; by the offer's formula it is {minor_money(recomputed.pay, units, currency)}"
    return _chain_fault(document, offer)


def _audition_fault(audition: Document, settlement: Document, offer: Offer) -> str | None:
    """Fault of the receipt's audition: it must be of this offer, and the settlement must be computed from it."""
    committed, result = audition["commitment"], audition["result"]
    for part in (committed, result):
        if part is not None and (part["client"], part["offer"]) != (offer.client.name, offer.hash):
            return "its audition is of another client or offer"
    if result["model"] is not None and committed is None:
        return "its audition was not committed to"
    for name in ("solo_loss", "level_shift", "passed"):
        if settlement[name] != result[name]:
            return f"the settlement's {name} is {settlement[name]}; that of the audition is {result[name]}"
    if not offer.client.samples <= settlement["present_labels"]:
        return "its settlement counts fewer labels than her own"
    return None


def _chain_fault(document: Document, offer: Offer) -> str | None:
    """Fault of the receipt's links: the chain must be valid and contain the receipt's own documents."""
    links = document["chain"]
    broken = broken_proof(links)
    if broken is not None:
        return f"its chain is broken: {broken.message}"
    expected = [
        ("offer", offer.key, document["offer"]),
        ("answer", offer.key, document["acceptance"]),
        ("test", "test", document["test"]),
        ("settlement", offer.client.name, document["settlement"]),
    ]
    if "audition" in document:
        committed, result = document["audition"]["commitment"], document["audition"]["result"]
        expected += [("commitment", offer.client.name, committed)] if committed is not None else []
        expected += [("audition", offer.client.name, result)]
    if document.get("final") is not None:
        expected.append(("final", offer.client.name, document["final"]))
    expected += [("command", key, command) for key, command in document.get("commands", {}).items()]
    salts = document.get("salts", {})
    for kind, key, payload in expected:
        matching = [link for link in links if (link["job"], link["kind"], link["key"]) == (offer.job.name, kind, key)]
        if len(matching) != 1:
            return f"its {kind} is not in the chain, or twice"
        salt = salts.get(str(matching[0]["sequence"]), "")
        if matching[0]["payload"] != payload_digest(canonical_bytes(payload).decode(), salt):
            return f"its {kind} is not the one in the chain"
    return None
