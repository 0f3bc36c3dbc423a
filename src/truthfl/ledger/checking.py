"""Check of a whole ledger: every entry that can be recomputed is, and the first wrong one is reported.

Imports `canonical`, `chain`, `commitment`, `documents`, `entry`, `job_view`, `money`, `payments`, `receipts`,
`settlement`, `signing`, `solo_evidence`, `terms`.
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
from truthfl.ledger.money import minor_money
from truthfl.ledger.payments import payment_fault
from truthfl.ledger.receipts import receipt_document, receipt_fault
from truthfl.ledger.settlement import settled_from_entries, settlement_document
from truthfl.ledger.signing import signed_by
from truthfl.ledger.solo_evidence import level_shifts, passes
from truthfl.ledger.terms import Offer, offer_from


def check(entries: Sequence[Entry]) -> Fault | None:
    """The first fault in all entries of a ledger; None if there is none."""
    broken = broken_link(entries)
    if broken is not None:
        return broken
    faults = []
    for job in dict.fromkeys(entry.job for entry in entries):
        view = job_view(job, [entry for entry in entries if entry.job == job])
        faults += list(_faults(view, entries))
    return min(faults, key=lambda fault: fault.position, default=None)


def check_receipt(receipt: Document, entries: Sequence[Entry]) -> str | None:
    """The first fault of a signed receipt, by itself and compared with a ledger's entries; None if it is valid."""
    fault = receipt_fault(receipt)
    if fault is not None:
        return fault
    document = receipt["document"]
    rows = [row for row in entries if row.unique_key == (document["job"], "receipt", document["client"])]
    if not rows:
        return "the ledger has no such receipt"
    recorded = rows[0].document
    if (recorded["digest"], recorded["signature"]) != (digest(document), receipt["signature"]):
        return "the ledger has another receipt of hers for this job"
    return None


def _faults(view: JobView, entries: Sequence[Entry]) -> Iterator[Fault]:
    for check_kind in (_openings, _offers, _answers, _auditions, _rounds, _test, _settlements):
        yield from _guarded(check_kind(view), view)
    yield from _guarded(_receipts(view, entries), view)
    fault = payment_fault(view.payments)
    if fault is not None:
        yield Fault(view.payments[fault.position].sequence - 1, fault.message)
    yield from _guarded(_payments(view), view)


def _guarded(faults: Iterator[Fault], view: JobView) -> Iterator[Fault]:
    """These faults, and one more if an entry's document has missing or malformed fields."""
    try:
        yield from faults
    except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
        first = view.job.sequence if view.job is not None else 1
        yield Fault(first - 1, f"entry {first}: job {view.name} cannot be recomputed: {type(error).__name__} {error}")


def _fault(entry: Entry, message: str) -> Fault:
    location = f"entry {entry.sequence}, {entry.kind} {entry.key!r} of job {entry.job}"
    return Fault(entry.sequence - 1, f"{location}: {message}")


def _openings(view: JobView) -> Iterator[Fault]:
    rows = [*view.enrolments.values(), *view.offers.values(), *view.rounds]
    if view.job is None and rows:
        yield _fault(rows[0], "the job itself is not in the ledger before it")
    for name, entry in view.enrolments.items():
        if entry.document["name"] != name:
            yield _fault(entry, "it is the enrolment of another client")


def _offers(view: JobView) -> Iterator[Fault]:
    assert view.job is not None
    opening = view.job.document
    terms = {}
    for key, entry in view.offers.items():
        offer = offer_from(entry.document)
        job, client = offer.job, offer.client
        if offer.key != key or job.name != view.name:
            yield _fault(entry, "it is an offer to another client, or of another job")
        if (job.commitment, job.operator_key, job.seed) != tuple(
            opening[name] for name in ("commitment", "operator_key", "seed")
        ):
            yield _fault(entry, "its commitment, seed or operator's key is not the job's")
        if job.version not in terms:
            terms[job.version] = view.terms_of(job.version, (offer,))
        if job != terms[job.version]:
            yield _fault(entry, "its job terms are not those of the plan")
        if client.name not in view.enrolments:
            yield _fault(entry, "its client did not enrol")
        elif view.enrolments[client.name].document["public_key"] != client.public_key:
            yield _fault(entry, "its public key is not the one she enrolled with")


def _answers(view: JobView) -> Iterator[Fault]:
    for key, entry in view.answers.items():
        if key not in view.offers:
            yield _fault(entry, "there is no such offer")
            continue
        fault = answer_fault(entry.document, offer_from(view.offers[key].document), of_old_entry=not entry.salt)
        if fault is not None:
            yield _fault(entry, fault)


def _auditions(view: JobView) -> Iterator[Fault]:
    """Faults of commitments and auditions: whose they are, their order, shifts of the level, and who passed."""
    in_force = {offer.client.name: offer for offer in _offers_in_force(view)}
    terms = None if view.agreement is None else view.agreement.terms
    for entry in (*view.commitments.values(), *view.auditions.values()):
        offer, document = in_force.get(entry.key), entry.document
        if terms is None or not terms.has_audition or offer is None:
            yield _fault(entry, "she has no contract with an audition")
        elif (document["client"], document["offer"]) != (offer.client.name, offer.hash):
            yield _fault(entry, "it is of another client or offer")
    if terms is None or not terms.has_audition:
        return
    if not view.auditions:
        if view.rounds or view.test is not None:
            yield _fault((*view.rounds, *filter(None, [view.test]))[0], "it comes before the auditions")
        return
    first = next(iter(view.auditions.values()))
    if set(view.auditions) != set(in_force):
        yield _fault(first, "not all clients with a contract, or others, have an audition")
        return
    for later in (*view.rounds[:1], *filter(None, [view.test])):
        if later.sequence < max(entry.sequence for entry in view.auditions.values()):
            yield _fault(later, "it comes before the auditions")
    shifts = level_shifts(
        tuple(in_force.values()), {name: entry.document["solo_loss"] for name, entry in view.auditions.items()}
    )
    for name, entry in view.auditions.items():
        document, committed = entry.document, view.commitments.get(name)
        has_model = document["model"] is not None
        if has_model != (document["solo_loss"] is not None) or document["passed"] != (document["reason"] is None):
            yield _fault(entry, "it has a model and no loss, or did not pass for no reason")
        if has_model and (committed is None or committed.sequence > entry.sequence):
            yield _fault(entry, "its model was not committed to before")
        if document["level_shift"] != shifts[name]:
            yield _fault(entry, f"the level's shift is {document['level_shift']}; recomputed it is {shifts[name]}")
        elif document["passed"] != passes(in_force[name], document["solo_loss"], shifts[name]):
            yield _fault(entry, "whether she passed is not what her offer says")


def _rounds(view: JobView) -> Iterator[Fault]:
    if view.agreement is not None and view.agreement.terms.has_audition:
        yield from _stopped_clients(view)
    names = {offer.client.name for offer in _offers_in_force(view)}
    for number, entry in enumerate(view.rounds, start=1):
        document = entry.document
        if (document["round"], entry.key) != (number, str(number)):
            yield _fault(entry, f"it is where round {number} should be")
        taken = document["taken"]
        if len(set(taken)) != len(taken) or not set(taken) <= names:
            yield _fault(entry, "reports are counted of clients without a contract, or twice")
        asked = document.get("asked", list(names))
        if len(set(asked)) != len(asked) or not set(taken) <= set(asked) <= names:
            yield _fault(entry, "reports are counted of clients who were not asked, or clients were asked twice")


def _stopped_clients(view: JobView) -> Iterator[Fault]:
    """Faults of rounds in which somebody was asked who did not pass the audition."""
    names = [offer.client.name for offer in _offers_in_force(view)]
    passed = set() if view.taking_part is None else {offer.client.name for offer in view.taking_part.offers}
    for entry in view.rounds:
        if not set(entry.document.get("asked", names)) <= passed:
            yield _fault(entry, "clients were asked who did not pass the audition")


def _test(view: JobView) -> Iterator[Fault]:
    if view.test is None:
        return
    document = view.test.document
    if not view.finished or view.agreement is None:
        yield _fault(view.test, "it comes before all rounds are there")
        return
    if view.rounds and document["model"] != view.rounds[-1].document["model"]:
        yield _fault(view.test, "another model was tested than the last round's")
    if commitment(document["test_set"], document["samples"], document["secret"]) != view.agreement.terms.commitment:
        yield _fault(view.test, "test set, number of draws and secret are not those committed to")


def _settlements(view: JobView) -> Iterator[Fault]:
    if not view.settlements or _lacks_auditions(view):
        return
    names = {offer.client.name for offer in _offers_in_force(view)}
    for name, entry in view.settlements.items():
        if name not in names:
            yield _fault(entry, "she has no contract")
    for offer in _offers_in_force(view):
        recorded = view.settlements.get(offer.client.name)
        if recorded is None:
            first = next(iter(view.settlements.values()))
            yield _fault(first, f"{offer.client.name} has a contract and no settlement")
            continue
        recomputed = settled_from_entries(offer, view)
        if recorded.document != settlement_document(recomputed, offer):
            pay, right = _pay_text(recorded.document.get("pay"), view), _pay_text(recomputed.pay, view)
            yield _fault(recorded, f"pay is {pay}; recomputed it is {right}")


def _receipts(view: JobView, entries: Sequence[Entry]) -> Iterator[Fault]:
    if _lacks_auditions(view):
        return
    for offer in _offers_in_force(view):
        entry = view.receipts.get(offer.client.name)
        if entry is None:
            continue
        document = receipt_document(offer, view, entries, offer.job.operator_key)
        recorded: Mapping[str, object] = entry.document
        if set(recorded) != {"client", "digest", "signature"} or recorded["client"] != offer.client.name:
            yield _fault(entry, "it does not have the parts of a receipt's row")
        elif recorded["digest"] != digest(document):
            yield _fault(entry, "its digest is not that of the receipt as recomputed")
        elif not signed_by(
            offer.job.operator_key, document, str(recorded["signature"]), of_old_entry="salts" not in document
        ):
            yield _fault(entry, "its signature is not the operator's")
    for name, entry in view.receipts.items():
        if name not in {offer.client.name for offer in _offers_in_force(view)}:
            yield _fault(entry, "she has no contract")


def _payments(view: JobView) -> Iterator[Fault]:
    due = {entry.document["client"]: entry for entry in view.payments if entry.key.endswith("/0")}
    for name, entry in view.settlements.items():
        if name not in due:
            yield _fault(entry, "no payment falls due for it")
        elif due[name].document["amount"] != entry.document["pay"]:
            amount, pay = (_pay_text(value, view) for value in (due[name].document["amount"], entry.document["pay"]))
            yield _fault(due[name], f"the amount is {amount}, settled is {pay}")
        elif view.agreement is not None and due[name].document["currency"] != view.agreement.terms.currency:
            yield _fault(due[name], f"its currency is not the {view.agreement.terms.currency} of the contract")
    for name, entry in due.items():
        if name not in view.settlements:
            yield _fault(entry, "nothing was settled for her")


def _pay_text(pay: object, view: JobView) -> str:
    """Pay in minor units, as in an entry, as people read it."""
    if type(pay) is not int or view.agreement is None:
        return repr(pay)
    return minor_money(pay, view.minor_units, view.agreement.terms.currency)


def _lacks_auditions(view: JobView) -> bool:
    """Whether pay cannot be recomputed for want of auditions; with rounds or a test, that is a fault by itself."""
    return view.agreement is not None and view.agreement.terms.has_audition and not view.auditions


def _offers_in_force(view: JobView) -> tuple[Offer, ...]:
    return () if view.agreement is None else view.agreement.offers
