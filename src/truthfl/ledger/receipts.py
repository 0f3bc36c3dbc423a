"""The check of a receipt by itself: a client can check hers without the ledger."""

from __future__ import annotations

from collections.abc import Mapping

from truthfl.coded_text import amount, coded, english
from truthfl.ledger.canonical import Document, canonical_bytes
from truthfl.ledger.commitment import commitment
from truthfl.ledger.documents import answer_fault, offer_fault
from truthfl.ledger.early_end import commands_fault, loss_in_receipt
from truthfl.ledger.entry import payload_digest
from truthfl.ledger.holds import receipt_hold_fault
from truthfl.ledger.money import minor_money
from truthfl.ledger.receipt_proof import links_fault
from truthfl.ledger.receipt_rounds import had_no_rounds, rounds_fault
from truthfl.ledger.settlement import settled_for, settlement_document
from truthfl.ledger.signing import signed_by
from truthfl.ledger.solo_evidence import SoloEvidence
from truthfl.ledger.terms import Offer, offer_from

FIELDS = frozenset(
    (
        "kind",
        "job",
        "client",
        "offer",
        "acceptance",
        "rounds",
        "final",
        "test",
        "settlement",
        "public_key",
        "salts",
        "proof",
    )
)
OPTIONAL_FIELDS = frozenset(("audition", "commands", "lost"))
ENTRY_NAMES = {
    "offer": coded("entry.offer", "offer"),
    "answer": coded("entry.answer", "answer"),
    "test": coded("entry.test", "test"),
    "settlement": coded("entry.settlement", "settlement"),
    "commitment": coded("entry.commitment", "commitment"),
    "audition": coded("entry.audition", "audition"),
    "final": coded("entry.final", "final"),
    "command": coded("entry.command", "command"),
    "ended": coded("entry.ended", "end of the job"),
    "hold": coded("entry.hold", "held model"),
}


def receipt_fault(receipt: Document) -> str | None:
    """The first fault in a signed receipt's signatures, commitment, pay or proof; None if it is valid."""
    try:
        return _fault(receipt)
    except Exception as error:  # it may hold anything, and so may what is computed from it
        details = english(f"{type(error).__name__}: {error}")
        return coded("fault.no_receipt", "it is not a receipt ({error})", error=details)


def _fault(receipt: Document) -> str | None:
    document = receipt.get("document")
    if set(receipt) != {"document", "signature"} or not isinstance(document, Mapping):
        return coded("fault.unsigned", "it is no signed document")
    if document.get("kind") != "receipt" or not FIELDS <= set(document) <= FIELDS | OPTIONAL_FIELDS:
        return coded("fault.parts", "it does not have the parts of a receipt")
    offer, test, settlement = offer_from(document["offer"]), document["test"], document["settlement"]
    if ("audition" in document) != offer.job.has_audition:
        return coded("fault.audition_or_none", "it has an audition and its offer none, or the other way round")
    if document["public_key"] != offer.job.operator_key:
        return coded("fault.operator_key", "it is signed with another key than the one that the offer names")
    if not signed_by(offer.job.operator_key, document, str(receipt["signature"])):
        return coded("fault.signature", "its signature is not of the operator's key, or something in it was changed")
    if (document["job"], document["client"]) != (offer.job.name, offer.client.name):
        return coded("fault.other_job", "it is for another job or client than its offer")
    fault = offer_fault(offer)
    if fault is not None:
        return coded("fault.offer", "its offer does not hold: {fault}", fault=english(fault))
    fault = answer_fault(document["acceptance"], offer)
    if fault is not None:
        return coded("fault.acceptance", "its acceptance does not hold: {fault}", fault=english(fault))
    if commitment(test["test_set"], test["samples"], test["secret"]) != offer.job.commitment:
        return coded(
            "fault.commitment",
            "test set, number of draws and secret are not those the server committed itself to in the offer",
        )
    asked, stopped = settlement["asked"], settlement.get("passed") is False
    stopped = stopped or had_no_rounds(document, offer)
    expected = 0 if stopped else offer.job.rounds if offer.client.participation == 1 else asked
    if (settlement["client"], asked) != (offer.client.name, expected):
        return coded("fault.settlement", "its settlement is for other rounds or another client than the offer")
    fault = commands_fault(document, offer) or rounds_fault(document, offer)
    if fault is not None:
        return fault
    evidence, rise = None, settlement.get("loss_rise", 0.0)
    if offer.job.has_audition:
        fault = receipt_hold_fault(document, offer) or _audition_fault(document["audition"], settlement, offer)
        if fault is not None:
            return fault
        result = document["audition"]["result"]
        evidence = SoloEvidence(result["solo_loss"], result["level_shift"], settlement["present_labels"], rise)
    loss = loss_in_receipt(document, offer, evidence)
    recomputed = settled_for(offer, loss, settlement["delivered"], asked, evidence, rise)
    if dict(settlement) != settlement_document(recomputed):
        units, currency = offer.job.minor_units, offer.job.currency
        paid, owed = (
            amount(minor_money(pay, units, currency), pay / units, units, currency)
            for pay in (int(settlement["pay"]), recomputed.pay)
        )
        return coded("fault.pay", "the pay is {paid}; by the offer's formula it is {owed}", paid=paid, owed=owed)
    return links_fault(document) or _documents_fault(document, offer)


def _audition_fault(audition: Document, settlement: Document, offer: Offer) -> str | None:
    """Fault of the receipt's audition: it must be of this offer, and the settlement must be computed from it."""
    committed, result = audition["commitment"], audition["result"]
    for part in (committed, result):
        if part is not None and (part["client"], part["offer"]) != (offer.client.name, offer.hash):
            return coded("fault.audition_other", "its audition is of another client or offer")
    if result["model"] is not None and committed is None:
        return coded("fault.audition_uncommitted", "its audition was not committed to")
    for name in ("solo_loss", "level_shift", "passed"):
        if settlement[name] != result[name]:
            return coded(
                "fault.audition_differs",
                "the settlement's {name} is {settled}; that of the audition is {tested}",
                name=english(name),
                settled=english(str(settlement[name])),
                tested=english(str(result[name])),
            )
    if not offer.client.samples <= settlement["present_labels"]:
        return coded("fault.fewer_labels", "its settlement counts fewer labels than her own")
    return None


def _documents_fault(document: Document, offer: Offer) -> str | None:
    """Fault of the receipt's documents: each must be that of one of its links, which are valid."""
    links = document["proof"]["links"]
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
        held = document["audition"]["held"]
        expected += [("hold", offer.client.name, held)] if held is not None else []
    if document["final"] is not None:
        expected.append(("final", offer.client.name, document["final"]))
    if "lost" in document:
        expected.append(("ended", "ended", document["lost"]))
    expected += [("command", key, command) for key, command in document.get("commands", {}).items()]
    for kind, key, payload in expected:
        matching = [link for link in links if (link["job"], link["kind"], link["key"]) == (offer.job.name, kind, key)]
        if len(matching) != 1:
            return coded(
                "fault.not_in_ledger", "its {kind} is not in the ledger by its proof, or twice", kind=ENTRY_NAMES[kind]
            )
        salt = document["salts"][str(matching[0]["sequence"])]
        if matching[0]["payload"] != payload_digest(canonical_bytes(payload).decode(), salt):
            return coded("fault.other_in_ledger", "its {kind} is not the one in the ledger", kind=ENTRY_NAMES[kind])
    return None
