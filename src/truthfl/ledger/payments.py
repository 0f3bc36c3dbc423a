"""Payments and their states; each change is an entry. Payments as CSV and JSON.

    due → sent → confirmed
          sent → failed → sent → …
    not due

The pay for a solo model that is too good is not sent before the operator has decided on it (`job_view`).

Step n of a client's payment has the key "client/n". Step 0 is due, or not due if the amount is 0 or less. If two
processes write the same step, one gets a `Conflict`. The idempotency key is the same in all steps, so a payout provider
pays once even if it gets two requests.
"""

from __future__ import annotations

import csv
import json
import operator
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from truthfl.errors import InputError, ServiceError
from truthfl.ledger.canonical import digest
from truthfl.ledger.entry import Conflict, Entry, Fault, Item
from truthfl.ledger.held_models import unseen_names, unseen_sentence
from truthfl.ledger.job_view import job_view
from truthfl.texts import csv_text

if TYPE_CHECKING:
    from truthfl.ledger.book import Ledger
from typing import TYPE_CHECKING

NEXT_STATES = {"due": ("sent",), "sent": ("confirmed", "failed"), "failed": ("sent",), "confirmed": (), "not due": ()}
MARKS = ("sent", "confirmed", "failed")  # the states that an operator notes
FIELDS = ("client", "state", "amount", "currency", "idempotency_key", "reference")
MAX_CONFLICTS = 20


def idempotency_key(job: str, client: str) -> str:
    """Identifies this payment to the payout provider; it never changes."""
    return digest({"job": job, "client": client})


def due_items(job: str, amounts: Mapping[str, int], currency: str) -> list[Item]:
    """The items that open a job's payments; to be written in one transaction with its settlements.

    amounts   in whole minor units, by client; negative if the client owes it
    """
    if not currency:
        raise InputError("the currency of a payment is empty; it must be a text, as in 'EUR'.")
    whole = {client: _as_integer(client, amount) for client, amount in amounts.items()}
    return [
        Payment(job, client, 0, _first_state(amount), amount, currency, "").item() for client, amount in whole.items()
    ]


def _first_state(amount: int) -> str:
    return "due" if amount > 0 else "not due"


def payments(ledger: Ledger, job: str) -> list[Payment]:
    """Current state of each payment of the job, in the order in which they were opened."""
    latest: dict[str, Payment] = {}
    for entry in ledger.entries(job, "payment"):
        payment = payment_of(entry)
        latest[payment.client] = payment
    return list(latest.values())


def advance(ledger: Ledger, job: str, client: str, to: str, reference: str = "") -> Payment:
    """Change a payment's state, unless this change is recorded already; return its current state.

    to          sent, confirmed or failed
    reference   the payout provider's name for the payment; if empty, a sent payment keeps its reference
    """
    if to not in MARKS:
        raise InputError(f"a payment cannot become {to!r}; it can become sent, confirmed or failed.")
    if to == "sent" and client in _unseen(ledger, job):
        raise InputError(unseen_sentence(job, client))
    return _advance(ledger, job, client, to, reference)


def _advance(ledger: Ledger, job: str, client: str, to: str, reference: str) -> Payment:
    for _ in range(MAX_CONFLICTS):
        steps = _steps(ledger, job, client)
        if not steps:
            raise InputError(f"job {job!r} has no payment of client {client!r}; it is opened when the job is settled.")
        current = steps[-1]
        if to in NEXT_STATES[current.state]:
            kept = reference or (current.reference if current.state == "sent" else "")
            step = Payment(job, client, current.step + 1, to, current.amount, current.currency, kept)
            try:
                ledger.append_all([step.item()])
            except Conflict:  # another process wrote this step; read the steps again
                continue
            return _steps(ledger, job, client)[-1]
        if any(step.state == to and reference in ("", step.reference) for step in steps):
            return current
        raise InputError(_impossible_change(current, to))
    raise ServiceError(f"the payment of client {client!r} in job {job!r} is being changed by others; try again later.")


def advance_all(ledger: Ledger, job: str, to: str, reference: str = "") -> tuple[list[Payment], list[Payment]]:
    """Change the state of all payments that can become `to`; return these and the others, as they are now.

    Pay for a solo model that awaits a decision is not sent. Raise an error if no payment can become `to`, none is held
    back for that reason, and none is or was in this state.
    """
    current, unseen = payments(ledger, job), _unseen(ledger, job) if to == "sent" else []
    possible = [one for one in current if to in NEXT_STATES[one.state] and one.client not in unseen]
    skipped = [one for one in current if to not in NEXT_STATES[one.state] or one.client in unseen]
    if (
        not possible
        and not unseen
        and all(to not in (step.state for step in _steps(ledger, job, one.client)) for one in skipped)
    ):
        states = ", ".join(f"{payment.client} is {payment.state}" for payment in skipped) or "it has none"
        raise InputError(f"no payment of job {job!r} can become {to}: {states}.")
    return [_advance(ledger, job, payment.client, to, reference) for payment in possible], skipped


def payment_of(entry: Entry) -> Payment:
    """The payment step in this entry; an error if it is none."""
    fault = _entry_fault(entry)
    if fault:
        raise InputError(f"entry {entry.sequence} is no payment: {fault}.")
    client, state, amount, currency, _, reference = (entry.document[name] for name in FIELDS)
    step = int(entry.key.rpartition("/")[2])
    return Payment(entry.job, client, step, state, amount, currency, reference)


def payment_fault(entries: Iterable[Entry]) -> Fault | None:
    """The first invalid step in these entries, which are of kind payment and in order; None if all are valid."""
    latest: dict[tuple[str, str], Payment] = {}
    for position, entry in enumerate(entries):
        fault = _entry_fault(entry)
        if fault is None:
            step = payment_of(entry)
            fault = _step_fault(latest.get((step.job, step.client)), step)
            latest[step.job, step.client] = step
        if fault:
            return Fault(position, f"entry {entry.sequence} is no lawful step of a payment: {fault}")
    return None


def unseen_payments(ledger: Ledger, job: str) -> list[Payment]:
    """The payments that wait for the operator's decision on a solo model."""
    unseen = _unseen(ledger, job)
    return [one for one in payments(ledger, job) if one.client in unseen and "sent" in NEXT_STATES[one.state]]


def _unseen(ledger: Ledger, job: str) -> list[str]:
    return unseen_names(job_view(job, ledger.entries(job)))


def _steps(ledger: Ledger, job: str, client: str) -> list[Payment]:
    steps: list[Payment] = []
    while entry := ledger.find(job, "payment", f"{client}/{len(steps)}"):
        steps.append(payment_of(entry))
    return steps


def _impossible_change(current: Payment, to: str) -> str:
    """The error message for a state that cannot follow the current one."""
    reference = f" (reference {current.reference!r})" if current.reference else ""
    possible = " or ".join(NEXT_STATES[current.state])
    hint = f"it can become {possible}" if possible else "that is its last state"
    payment = f"the payment of client {current.client!r} in job {current.job!r}"
    return f"{payment} is {current.state}{reference} and cannot become {to}; {hint}."


def _as_integer(client: str, amount: int) -> int:
    try:
        if isinstance(amount, bool):
            raise TypeError
        return operator.index(amount)
    except TypeError:
        raise InputError(
            f"the amount of client {client!r} is {amount!r}; it must be a whole number of minor units."
        ) from None


def _entry_fault(entry: Entry) -> str | None:
    try:
        document = entry.document
    except InputError:
        return "its payload cannot be read"
    if entry.kind != "payment":
        return f"it is of kind {entry.kind!r}"
    if set(document) != set(FIELDS):
        return f"it must have the parts {', '.join(FIELDS)} and no others"
    if type(document["amount"]) is not int:
        return "its amount is not a whole number"
    for name in FIELDS:
        if name != "amount" and not isinstance(document[name], str):
            return f"its {name} is not text"
    client, _, step = entry.key.rpartition("/")
    if client != document["client"] or not (step.isascii() and step.isdecimal()) or step != str(int(step)):
        return "its key is not the client's name and the number of the step"
    if document["state"] not in NEXT_STATES:
        return f"{document['state']!r} is no state of a payment"
    if document["idempotency_key"] != idempotency_key(entry.job, document["client"]):
        return "its idempotency key is not the one of this job and client"
    return None


def _step_fault(previous: Payment | None, step: Payment) -> str | None:
    if previous is None:
        first = _first_state(step.amount)
        is_first = (step.step, step.state, step.reference) == (0, first, "")
        return None if is_first else f"it is the first, of {step.amount}, and must be {first}"
    if step.step != previous.step + 1:
        return f"it is step {step.step} behind step {previous.step}"
    if step.state not in NEXT_STATES[previous.state]:
        return f"what was {previous.state} became {step.state}"
    if (step.amount, step.currency) != (previous.amount, previous.currency):
        return "the amount or the currency is not the one that was due"
    return None


@dataclass(frozen=True)
class Payment:
    """One client's payment at one step.

    step       0 when it is opened, one more with every change
    state      due, sent, confirmed or failed; not due if the amount is 0 or less
    amount     in whole minor units; negative: the client owes it
    reference  the payout provider's name for the payment; may be empty
    """

    job: str
    client: str
    step: int
    state: str
    amount: int
    currency: str
    reference: str

    @property
    def idempotency_key(self) -> str:
        return idempotency_key(self.job, self.client)

    def item(self) -> Item:
        """The item to append to the ledger."""
        document = {name: getattr(self, name) for name in FIELDS}
        return Item(self.job, "payment", f"{self.client}/{self.step}", document)


@dataclass(frozen=True)
class PayoutRow:
    """Current state of one payment.

    amount_minor   in whole minor units of the currency; negative: the client owes it
    minor_units    how many of them are one unit of the currency: 100 cents are one EUR
    """

    idempotency_key: str
    job: str
    client: str
    amount_minor: int
    currency: str
    state: str
    reference: str
    minor_units: int = 1


COLUMNS = tuple(field.name for field in fields(PayoutRow))


def payout_rows(ledger: Ledger, job: str | None = None, *, unseen: bool = False) -> list[PayoutRow]:
    """The payments of one job, or of all, the oldest job first.

    unseen  also those that wait for the operator's decision on a solo model
    """
    jobs = ledger.jobs() if job is None else [job]
    return [row for name in jobs for row in _rows(ledger, name, unseen=unseen)]


def payout_csv(rows: Iterable[PayoutRow]) -> str:
    """CSV with a header and one line per payment; the JSON has the names as they are."""
    return csv_text([COLUMNS, *(asdict(row).values() for row in rows)], csv.QUOTE_NONNUMERIC)


def payout_json(rows: Iterable[PayoutRow]) -> str:
    """A JSON list with an object for each payment."""
    return json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False) + "\n"


def _rows(ledger: Ledger, job: str, *, unseen: bool) -> list[PayoutRow]:
    minor_units = job_view(job, ledger.entries(job)).minor_units
    waiting = () if unseen else unseen_payments(ledger, job)
    return [_row(payment, minor_units) for payment in payments(ledger, job) if payment not in waiting]


def _row(payment: Payment, minor_units: int) -> PayoutRow:
    return PayoutRow(
        payment.idempotency_key,
        payment.job,
        payment.client,
        payment.amount,
        payment.currency,
        payment.state,
        payment.reference,
        minor_units,
    )
