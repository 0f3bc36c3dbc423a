"""Check of a whole ledger: every entry is recomputed where possible, and the first wrong one is reported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256

from truthfl.amounts import minor_money
from truthfl.contracts.registry import require_named
from truthfl.ledger.canonical import Document, canonical_bytes, commitment, digest
from truthfl.ledger.command_rows import admission_faults, command_faults, end_faults
from truthfl.ledger.documents import answer_fault, final_fault, offer_fault
from truthfl.ledger.entry import KINDS, Entry, Fault, broken_link, fault_at, is_row_signed, job_row_key
from truthfl.ledger.evidence import level_shifts, passes
from truthfl.ledger.held_models import hold_faults
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.payments import payment_fault
from truthfl.ledger.receipts import ROW_FIELDS, JobReceipts, ledger_differs, receipt_fault
from truthfl.ledger.settlement import settled_from_entries, settlement_document
from truthfl.ledger.signing import bytes_signed_by
from truthfl.ledger.terms import Offer, offer_from


def round_faults(view: JobView) -> Iterator[Fault]:
    """Faults of the rounds: their numbers, who was asked and is counted, and the models from which each started."""
    yield from _start_faults(view)
    names = {offer.client.name for offer in _offers_in_force(view)}
    taking_part = set() if view.taking_part is None else {offer.client.name for offer in view.taking_part.offers}
    previous: str | None = None
    for number, entry in enumerate(view.rounds, start=1):
        document = entry.document
        if (document["round"], entry.key) != (number, str(number)):
            yield fault_at(entry, f"it is where round {number} should be")
        asked, missing = list(view.asked_in(entry)), list(document["missing"])
        if not set(asked) <= names or len(set(asked)) != len(asked):
            yield fault_at(entry, "clients were asked who have no contract, or twice")
        elif not set(asked) <= taking_part:
            yield fault_at(entry, "clients were asked who did not pass the audition")
        if len(set(missing)) != len(missing) or not set(missing) <= set(asked):
            yield fault_at(entry, "clients are missing who were not asked, or twice")
        if previous is not None and document["previous"] != previous:
            yield fault_at(entry, "it starts from another model than the one after the round before")
        previous = document["model"]


def _start_faults(view: JobView) -> Iterator[Fault]:
    for number, entry in enumerate(view.starts):
        if (entry.document["start"], entry.key) != (number, str(number)):
            yield fault_at(entry, f"it is where start {number} of the server should be")
        first = entry.document["round"] - 1
        known = [one.document["previous"] for one in view.rounds[first : first + 1]]
        known += [one.document["model"] for one in view.rounds[max(first - 1, 0) : first]]
        if not 0 <= first <= len(view.rounds) or {entry.document["model"], *known} != {entry.document["model"]}:
            yield fault_at(entry, "it begins with another model than the rounds")


def final_faults(view: JobView) -> Iterator[Fault]:
    """Faults of the clients' confirmations of the final model: each comes before the test or is noted as missing."""
    in_force = {offer.client.name: offer for offer in _offers_in_force(view)}
    last = view.last_model
    for name, entry in view.finals.items():
        if name not in in_force:
            yield fault_at(entry, "the client has no contract")
            continue
        fault = final_fault(entry.document, in_force[name])
        if fault is not None:
            yield fault_at(entry, fault)
        elif last is not None and entry.document["document"]["model"] != last:
            yield fault_at(entry, "it is of another model than the last round's")
        elif view.test is not None and entry.sequence > view.test.sequence:
            yield fault_at(entry, "it comes after the test")
    if view.test is None:
        return
    absent = {entry.document["client"] for entry in view.rejections if entry.document["stage"] == "final"}
    for name in in_force:
        if name not in view.finals and name not in absent:
            yield fault_at(view.test, f"{name} was not told the final model before it")


def test_faults(view: JobView) -> Iterator[Fault]:
    """Faults of the test: its place, its model, and the server's commitment."""
    if view.test is None:
        return
    document = view.test.document
    if not view.finished or view.agreement is None:
        yield fault_at(view.test, "it comes before all rounds are there")
        return
    if view.last_model not in (None, document["model"]):
        yield fault_at(view.test, "another model was tested than the last round's")
    signed_for = {entry.document["document"]["model"] for entry in view.finals.values()}
    if not signed_for <= {document["model"]}:
        yield fault_at(view.test, "another model was tested than the one that the clients signed for")
    if commitment(document["test_set"], document["samples"], document["secret"]) != view.agreement.terms.commitment:
        yield fault_at(view.test, "test set, number of draws and secret are not those committed to")


def _offers_in_force(view: JobView) -> tuple[Offer, ...]:
    return () if view.agreement is None else view.agreement.offers


def check(entries: Sequence[Entry]) -> Fault | None:
    """The first fault in all rows of a ledger; None if there is none.

    A row that its operator did not sign is named first, because other faults may follow from it. Raise `InputError` if
    a job names a custom contract that is not registered.
    """
    broken = broken_link(entries)
    unsigned, faults = list[Fault](), [] if broken is None else [broken]
    whole = entries if broken is None else entries[: broken.position]
    of_job: dict[str, list[Entry]] = {}
    for entry in whole:
        of_job.setdefault(entry.job, []).append(entry)
    for job, rows in of_job.items():
        own_unsigned, signed = _signed_rows(rows)
        unsigned += own_unsigned
        if signed and broken is None:
            require_contract(signed[0])
            faults += _faults(job_view(job, signed), entries)
    first, other = (min(found, key=lambda fault: fault.position, default=None) for found in (unsigned, faults))
    if first is None or other is None:
        return first or other
    return Fault(first.position, f"{first.message}; besides, {other.message}")


def require_contract(job: Entry) -> None:
    """Raise `InputError` if the job names a custom contract that is not here: its pay cannot be recomputed."""
    document = job.document.get("job")
    contract = document.get("contract") if isinstance(document, Mapping) else None
    if isinstance(contract, Mapping) and {"kind", "use", "source"} <= set(contract):
        require_named(contract, job.job)


def _signed_rows(rows: Sequence[Entry]) -> tuple[list[Fault], list[Entry]]:
    """The faults of the rows of one job that do not count, and the other rows."""
    line = job_row_key(entry for entry in rows if entry.kind == "job")
    if line is None:
        return [fault_at(rows[0], "the job itself, with its operator's signature, is not in the ledger before it")], []
    faults: list[Fault] = []
    signed: list[Entry] = []
    keys = set[tuple[str, str, str]]()
    for entry in rows:
        if not is_row_signed(line, entry):
            faults.append(fault_at(entry, "the job's operator did not sign it"))
        elif not signed and entry.kind != "job":
            faults.append(fault_at(entry, "the job itself is not in the ledger before it"))
        elif entry.unique_key in keys:
            faults.append(fault_at(entry, "an entry before has the same job, kind and key"))
        elif entry.kind not in KINDS:
            faults.append(fault_at(entry, "it is of no kind that truthfl writes"))
        else:
            signed.append(entry)
            keys.add(entry.unique_key)
    return faults, signed


def check_receipt(receipt: Document, entries: Sequence[Entry]) -> str | None:
    """The first fault of a signed receipt, by itself and compared with a ledger's entries; None if it is valid."""
    fault = receipt_fault(receipt)
    if fault is not None:
        return fault
    document = receipt["document"]
    fault = ledger_differs(document, entries)
    if fault is not None:
        return fault
    line = job_row_key(
        (row for row in entries if (row.job, row.kind) == (document["job"], "job")), document["public_key"]
    )
    key = (document["job"], "receipt", document["client"])
    rows = [row for row in entries if row.unique_key == key and line is not None and is_row_signed(line, row)]
    if not rows:
        return "the ledger has no such receipt"
    recorded = rows[0].document
    if (recorded["digest"], recorded["signature"]) != (digest(document), receipt["signature"]):
        return "the ledger has another receipt of this client for this job"
    return None


def _faults(view: JobView, entries: Sequence[Entry]) -> Iterator[Fault]:
    before_rounds = (_openings, command_faults, admission_faults, _offers, _answers, _auditions, hold_faults)
    for check_kind in (*before_rounds, round_faults, end_faults, final_faults, test_faults, _settlements):
        yield from _guarded(check_kind(view), view)
    yield from _guarded(_receipts(view, entries), view)
    yield from _guarded(_acknowledgements(view), view)
    yield from _guarded(_payment_steps(view), view)
    yield from _guarded(_payments(view), view)


def _guarded(faults: Iterator[Fault], view: JobView) -> Iterator[Fault]:
    """These faults, and one more if an entry's document has missing or malformed fields."""
    try:
        yield from faults
    except Exception as error:  # a document may contain anything, and so may values computed from it
        first = view.job.sequence if view.job is not None else 1
        yield Fault(first - 1, f"entry {first}: job {view.name} cannot be recomputed: {type(error).__name__} {error}")


def _openings(view: JobView) -> Iterator[Fault]:
    for name, entry in view.enrolments.items():
        if entry.document["name"] != name:
            yield fault_at(entry, "it is the enrolment of another client")


def _offers(view: JobView) -> Iterator[Fault]:
    assert view.job is not None
    opening = view.job.document
    terms = {}
    for key, entry in view.offers.items():
        offer = offer_from(entry.document)
        job, client = offer.job, offer.client
        fault = offer_fault(offer)
        if fault is not None:
            yield fault_at(entry, fault)
        if offer.key != key or job.name != view.name:
            yield fault_at(entry, "it is an offer to another client, or of another job")
        if (job.commitment, job.operator_key, job.seed) != tuple(
            opening[name] for name in ("commitment", "operator_key", "seed")
        ):
            yield fault_at(entry, "its commitment, seed or operator's key is not the job's")
        if job.version not in terms:
            terms[job.version] = view.terms_of(job.version, (offer,))
        if job != terms[job.version]:
            yield fault_at(entry, "its job terms are not those of the plan")
        if client.name not in view.enrolments:
            yield fault_at(entry, "its client did not enrol")
        elif view.enrolments[client.name].document["public_key"] != client.public_key:
            yield fault_at(entry, "its public key is not the one the client enrolled with")


def _answers(view: JobView) -> Iterator[Fault]:
    for key, entry in view.answers.items():
        if key not in view.offers:
            yield fault_at(entry, "there is no such offer")
            continue
        fault = answer_fault(entry.document, offer_from(view.offers[key].document))
        if fault is not None:
            yield fault_at(entry, fault)


def _auditions(view: JobView) -> Iterator[Fault]:
    """Faults of commitments and auditions: their clients, their order, level shifts, and who passed."""
    in_force = {offer.client.name: offer for offer in _offers_in_force(view)}
    terms = None if view.agreement is None else view.agreement.terms
    for entry in (*view.commitments.values(), *view.auditions.values()):
        offer, document = in_force.get(entry.key), entry.document
        if terms is None or not terms.has_solo_models or offer is None:
            yield fault_at(entry, "the client has no contract with an audition")
        elif (document["client"], document["offer"]) != (offer.client.name, offer.hash):
            yield fault_at(entry, "it is of another client or offer")
    if terms is None or not terms.has_solo_models:
        return
    if not view.auditions:
        if view.rounds or view.test is not None:
            yield fault_at((*view.rounds, *filter(None, [view.test]))[0], "it comes before the auditions")
        return
    first = next(iter(view.auditions.values()))
    if set(view.auditions) != set(in_force):
        yield fault_at(first, "not all clients with a contract, or others, have an audition")
        return
    for later in (*view.rounds[:1], *filter(None, [view.test])):
        if later.sequence < max(entry.sequence for entry in view.auditions.values()):
            yield fault_at(later, "it comes before the auditions")
    shifts = level_shifts(
        tuple(in_force.values()), {name: entry.document["solo_loss"] for name, entry in view.auditions.items()}
    )
    for name, entry in view.auditions.items():
        document, committed = entry.document, view.commitments.get(name)
        has_model = document["model"] is not None
        if (document["solo_loss"] is not None and not has_model) or document["passed"] != (document["reason"] is None):
            yield fault_at(entry, "it has a loss and no model, or did not pass for no reason")
        if has_model and (committed is None or committed.sequence > entry.sequence):
            yield fault_at(entry, "its model was not committed to before")
        if document["level_shift"] != shifts[name]:
            yield fault_at(entry, f"the level's shift is {document['level_shift']}; recomputed it is {shifts[name]}")
        elif document["passed"] != passes(in_force[name], document["solo_loss"], shifts[name]):
            yield fault_at(entry, "whether they passed is not what their offer says")


def _settlements(view: JobView) -> Iterator[Fault]:
    if not view.settlements or _lacks_auditions(view):
        return
    names = {offer.client.name for offer in _offers_in_force(view)}
    for name, entry in view.settlements.items():
        if name not in names:
            yield fault_at(entry, "the client has no contract")
    for offer in _offers_in_force(view):
        recorded = view.settlements.get(offer.client.name)
        if recorded is None:
            first = next(iter(view.settlements.values()))
            yield fault_at(first, f"{offer.client.name} has a contract and no settlement")
            continue
        recomputed = settled_from_entries(offer, view)
        if recorded.document != settlement_document(recomputed):
            pay, right = _pay_text(recorded.document.get("pay"), view), _pay_text(recomputed.pay, view)
            yield fault_at(recorded, f"pay is {pay}; recomputed it is {right}")


def _receipts(view: JobView, entries: Sequence[Entry]) -> Iterator[Fault]:
    if _lacks_auditions(view):
        return
    receipts, offers = JobReceipts(view, entries), list(_offers_in_force(view))
    for offer in offers:
        entry = view.receipts.get(offer.client.name)
        if entry is None:
            continue
        document = receipts.document(offer, offer.job.operator_key)
        content = canonical_bytes(document)
        recorded: Mapping[str, object] = entry.document
        if set(recorded) != ROW_FIELDS or recorded["client"] != offer.client.name:
            yield fault_at(entry, "it does not have the parts of a receipt's row")
        elif recorded["digest"] != sha256(content).hexdigest():
            yield fault_at(entry, "its digest is not that of the receipt as recomputed")
        elif recorded["root"] != receipts.root:
            yield fault_at(entry, "its root is not that of the job's entries")
        elif not bytes_signed_by(offer.job.operator_key, content, str(recorded["signature"])):
            yield fault_at(entry, "its signature is not the operator's")
    names = {offer.client.name for offer in offers}
    for name, entry in view.receipts.items():
        if name not in names:
            yield fault_at(entry, "the client has no contract")


def _acknowledgements(view: JobView) -> Iterator[Fault]:
    for name, entry in view.acknowledgements.items():
        receipt = view.receipts.get(name)
        expected = None if receipt is None else {"client": name, "receipt": receipt.document["digest"]}
        if entry.document != expected:
            yield fault_at(entry, "it is of another receipt than theirs in the ledger")


def _payment_steps(view: JobView) -> Iterator[Fault]:
    fault = payment_fault(view.payments)
    if fault is not None:
        yield Fault(view.payments[fault.position].sequence - 1, fault.message)


def _payments(view: JobView) -> Iterator[Fault]:
    due = {entry.document["client"]: entry for entry in view.payments if entry.key.endswith("/0")}
    for name, entry in view.settlements.items():
        if name not in due:
            yield fault_at(entry, "no payment falls due for it")
        elif due[name].document["amount"] != entry.document["pay"]:
            amount, pay = (_pay_text(value, view) for value in (due[name].document["amount"], entry.document["pay"]))
            yield fault_at(due[name], f"the amount is {amount}, settled is {pay}")
        elif view.agreement is not None and due[name].document["currency"] != view.agreement.terms.currency:
            yield fault_at(due[name], f"its currency is not the {view.agreement.terms.currency} of the contract")
    for name, entry in due.items():
        if name not in view.settlements:
            yield fault_at(entry, "nothing was settled for the client")


def _pay_text(pay: object, view: JobView) -> str:
    """Pay in minor units, as in an entry, in readable form."""
    if type(pay) is not int or view.agreement is None:
        return repr(pay)
    return minor_money(pay, view.minor_units, view.agreement.terms.currency)


def _lacks_auditions(view: JobView) -> bool:
    """Whether pay cannot be recomputed because auditions are missing; with rounds or a test, that is a fault itself."""
    return view.agreement is not None and view.agreement.terms.has_solo_models and not view.auditions
