"""Recompute everything in the ledger that can be recomputed, and name the first row that is wrong.

Imports `chain`, `job_view`, `documents`, `settlement`, `receipts`, `payments`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, digest
from truthfl.ledger.chain import Fault, broken_link
from truthfl.ledger.commitment import commitment
from truthfl.ledger.documents import answer_fault
from truthfl.ledger.entry import Entry
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.payments import payment_fault
from truthfl.ledger.receipts import receipt_document, receipt_fault
from truthfl.ledger.settlement import settled_of, settlement_document
from truthfl.ledger.signing import signed_by
from truthfl.ledger.terms import Offer, offer_from


def check(entries: Sequence[Entry]) -> Fault | None:
    """The first fault in the whole book; None if there is none."""
    broken = broken_link(entries)
    if broken is not None:
        return broken
    faults = []
    for job in dict.fromkeys(entry.job for entry in entries):
        found = job_view(job, [entry for entry in entries if entry.job == job])
        faults += list(_faults(found, entries))
    return min(faults, key=lambda fault: fault.position, default=None)


def check_receipt(paper: Document, entries: Sequence[Entry]) -> str | None:
    """What is wrong with a client's receipt, by itself and against the book; None if nothing is."""
    wrong = receipt_fault(paper)
    if wrong is not None:
        return wrong
    document = paper["document"]
    rows = [row for row in entries if (row.job, row.kind, row.key) == (document["job"], "receipt", document["client"])]
    if not rows:
        return "the book has no such receipt"
    said = rows[0].document
    if (said["digest"], said["signature"]) != (digest(document), paper["signature"]):
        return "the book has another receipt of hers for this job"
    return None


def _faults(found: JobView, entries: Sequence[Entry]) -> Iterator[Fault]:
    for stage in (_openings, _offers, _answers, _rounds, _test, _settlements):
        yield from _guarded(stage(found), found)
    yield from _guarded(_receipts(found, entries), found)
    wrong = payment_fault(found.payments)
    if wrong is not None:
        yield Fault(found.payments[wrong.position].sequence - 1, wrong.what)
    yield from _guarded(_payments(found), found)


def _guarded(faults: Iterator[Fault], found: JobView) -> Iterator[Fault]:
    """A row that lacks what it should have is a fault too, not a crash."""
    try:
        yield from faults
    except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
        first = found.job.sequence if found.job is not None else 1
        yield Fault(first - 1, f"entry {first}: job {found.name} cannot be recomputed: {type(error).__name__} {error}")


def _fault(entry: Entry, what: str) -> Fault:
    return Fault(entry.sequence - 1, f"entry {entry.sequence}, {entry.kind} {entry.key!r} of job {entry.job}: {what}")


def _openings(found: JobView) -> Iterator[Fault]:
    rows = [*found.enrolments.values(), *found.offers.values(), *found.rounds]
    if found.job is None and rows:
        yield _fault(rows[0], "the job itself is not in the book before it")
    for name, entry in found.enrolments.items():
        if entry.document["name"] != name:
            yield _fault(entry, "it is the enrolment of another client")


def _offers(found: JobView) -> Iterator[Fault]:
    assert found.job is not None
    opening = found.job.document
    terms = {}
    for key, entry in found.offers.items():
        offer = offer_from(entry.document)
        job, client = offer.job, offer.client
        if offer.key != key or job.name != found.name:
            yield _fault(entry, "it is an offer to another client, or of another job")
        if (job.commitment, job.operator_key, job.seed) != tuple(
            opening[name] for name in ("commitment", "operator_key", "seed")
        ):
            yield _fault(entry, "its commitment, seed or operator's key is not the job's")
        if job.version not in terms:
            terms[job.version] = found.terms_of(job.version, (offer,))
        if job != terms[job.version]:
            yield _fault(entry, "its job terms are not those of the plan")
        if client.name not in found.enrolments:
            yield _fault(entry, "its client did not enrol")
        elif found.enrolments[client.name].document["public_key"] != client.public_key:
            yield _fault(entry, "its public key is not the one she enrolled with")


def _answers(found: JobView) -> Iterator[Fault]:
    for key, entry in found.answers.items():
        if key not in found.offers:
            yield _fault(entry, "there is no such offer")
            continue
        wrong = answer_fault(entry.document, offer_from(found.offers[key].document))
        if wrong is not None:
            yield _fault(entry, wrong)


def _rounds(found: JobView) -> Iterator[Fault]:
    names = {offer.client.name for offer in _offers_in_force(found)}
    for number, entry in enumerate(found.rounds, start=1):
        said = entry.document
        if (said["round"], entry.key) != (number, str(number)):
            yield _fault(entry, f"it is where round {number} should be")
        if len(set(said["taken"])) != len(said["taken"]) or not set(said["taken"]) <= names:
            yield _fault(entry, "reports are counted of clients without a contract, or twice")
        asked = said.get("asked", list(names))
        if len(set(asked)) != len(asked) or not set(said["taken"]) <= set(asked) <= names:
            yield _fault(entry, "reports are counted of clients who were not asked, or clients were asked twice")


def _test(found: JobView) -> Iterator[Fault]:
    if found.test is None:
        return
    said = found.test.document
    if not found.finished or found.agreement is None:
        yield _fault(found.test, "it comes before all rounds are there")
        return
    if said["model"] != found.rounds[-1].document["model"]:
        yield _fault(found.test, "another model was tested than the last round's")
    if commitment(said["test_set"], said["samples"], said["secret"]) != found.agreement.terms.commitment:
        yield _fault(found.test, "test set, number of draws and secret are not those committed to")


def _settlements(found: JobView) -> Iterator[Fault]:
    if not found.settlements:
        return
    names = {offer.client.name for offer in _offers_in_force(found)}
    for name, entry in found.settlements.items():
        if name not in names:
            yield _fault(entry, "she has no contract")
    for offer in _offers_in_force(found):
        paid = found.settlements.get(offer.client.name)
        if paid is None:
            first = next(iter(found.settlements.values()))
            yield _fault(first, f"{offer.client.name} has a contract and no settlement")
            continue
        right = settled_of(offer, found)
        if paid.document != settlement_document(right, offer):
            yield _fault(paid, f"pay is {paid.document.get('pay')}; recomputed it is {right.pay}")


def _receipts(found: JobView, entries: Sequence[Entry]) -> Iterator[Fault]:
    for offer in _offers_in_force(found):
        entry = found.receipts.get(offer.client.name)
        if entry is None:
            continue
        document = receipt_document(offer, found, entries, offer.job.operator_key)
        said: Mapping[str, object] = entry.document
        if set(said) != {"client", "digest", "signature"} or said["client"] != offer.client.name:
            yield _fault(entry, "it does not have the parts of a receipt's row")
        elif said["digest"] != digest(document):
            yield _fault(entry, "its digest is not that of the receipt as recomputed")
        elif not signed_by(offer.job.operator_key, document, str(said["signature"])):
            yield _fault(entry, "its signature is not the operator's")
    for name, entry in found.receipts.items():
        if name not in {offer.client.name for offer in _offers_in_force(found)}:
            yield _fault(entry, "she has no contract")


def _payments(found: JobView) -> Iterator[Fault]:
    due = {e.document["client"]: e for e in found.payments if e.document["state"] == "due"}
    for name, entry in found.settlements.items():
        if name not in due:
            yield _fault(entry, "no payment falls due for it")
        elif due[name].document["amount"] != entry.document["pay"]:
            yield _fault(due[name], f"the amount is {due[name].document['amount']}, settled is {entry.document['pay']}")
    for name, entry in due.items():
        if name not in found.settlements:
            yield _fault(entry, "nothing was settled for her")


def _offers_in_force(found: JobView) -> tuple[Offer, ...]:
    return () if found.agreement is None else found.agreement.offers
