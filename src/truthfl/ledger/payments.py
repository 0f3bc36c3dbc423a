"""Payments, from due to confirmed, each step an entry of its own. Looks at `book`, `chain`.

    due → sent → confirmed
          sent → failed → sent → …

Step n of a client's payment has the key "client/n"; step 0 is due. Two who take a step at the same time want the same
key, so one of them does. The idempotency key is the same in all steps, so that a payout provider who is asked twice
pays once.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from truthfl.errors import InputError, ServiceError
from truthfl.ledger.book import Conflict, Ledger
from truthfl.ledger.canonical import digest
from truthfl.ledger.chain import Fault
from truthfl.ledger.entry import Entry, Item

NEXT = {"due": ("sent",), "sent": ("confirmed", "failed"), "failed": ("sent",), "confirmed": ()}
PARTS = ("client", "state", "amount", "currency", "idempotency_key", "reference")
MOST_STEPS_OF_OTHERS = 20


def idempotency_key(job: str, client: str) -> str:
    """By which a payout provider knows this payment; for ever the same."""
    return digest({"job": job, "client": client})


def due_items(job: str, amounts: Mapping[str, int], currency: str) -> list[Item]:
    """What opens the payments of a job; to be written in one transaction with its settlement.

    amounts are in whole minor units, by client; a negative one she owes.
    """
    if not currency:
        raise InputError("the currency of a payment is empty; it must be a text, as in 'EUR'.")
    return [
        Payment(job, client, 0, "due", _whole(client, amount), currency, "").item()
        for client, amount in amounts.items()
    ]


def payments(ledger: Ledger, job: str) -> list[Payment]:
    """Each payment of the job as it stands, in the order in which they were opened."""
    latest: dict[str, Payment] = {}
    for entry in ledger.entries(job, "payment"):
        found = payment_of(entry)
        latest[found.client] = found
    return list(latest.values())


def advance(ledger: Ledger, job: str, client: str, to: str, reference: str = "") -> Payment:
    """Take the payment to this state; where it has been said already, nothing happens. The payment as it then stands.

    reference: what the payout provider calls it; may be empty
    """
    if to not in NEXT:
        raise InputError(f"a payment cannot become {to!r}; it can become sent, confirmed or failed.")
    for _ in range(MOST_STEPS_OF_OTHERS):
        steps = _steps(ledger, job, client)
        if not steps:
            raise InputError(f"job {job!r} has no payment of client {client!r}; it is opened when the job is settled.")
        now = steps[-1]
        if to in NEXT[now.state]:
            step = Payment(job, client, now.step + 1, to, now.amount, now.currency, reference)
            try:
                ledger.append_all([step.item()])
            except Conflict:  # somebody else took this step; see where it stands now
                continue
            return _steps(ledger, job, client)[-1]
        if (to, reference) in [(step.state, step.reference) for step in steps]:
            return now
        raise InputError(_refusal(now, to))
    raise ServiceError(f"the payment of client {client!r} in job {job!r} is being changed by others; try again later.")


def payment_of(entry: Entry) -> Payment:
    """The step that this entry is; a sentence where it is none."""
    wrong = _entry_fault(entry)
    if wrong:
        raise InputError(f"entry {entry.sequence} is no payment: {wrong}.")
    said = entry.document
    step = int(entry.key.rpartition("/")[2])
    return Payment(entry.job, said["client"], step, said["state"], said["amount"], said["currency"], said["reference"])


def payment_fault(entries: Iterable[Entry]) -> Fault | None:
    """The first of these entries, all of kind payment and in their order, that is no lawful step; None if all are."""
    latest: dict[tuple[str, str], Payment] = {}
    for position, entry in enumerate(entries):
        wrong = _entry_fault(entry)
        if wrong is None:
            step = payment_of(entry)
            wrong = _step_fault(latest.get((step.job, step.client)), step)
            latest[step.job, step.client] = step
        if wrong:
            return Fault(position, f"entry {entry.sequence} is no lawful step of a payment: {wrong}")
    return None


def _steps(ledger: Ledger, job: str, client: str) -> list[Payment]:
    steps: list[Payment] = []
    while entry := ledger.find(job, "payment", f"{client}/{len(steps)}"):
        steps.append(payment_of(entry))
    return steps


def _refusal(now: Payment, to: str) -> str:
    known = f" (reference {now.reference!r})" if now.reference else ""
    possible = " or ".join(NEXT[now.state])
    would_do = f"it can become {possible}" if possible else "that is its last state"
    whose = f"the payment of client {now.client!r} in job {now.job!r}"
    return f"{whose} is {now.state}{known} and cannot become {to}; {would_do}."


def _whole(client: str, amount: int) -> int:
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
        said = entry.document
    except InputError:
        return "its payload cannot be read"
    if entry.kind != "payment":
        return f"it is of kind {entry.kind!r}"
    if set(said) != set(PARTS):
        return f"it must have the parts {', '.join(PARTS)} and no others"
    if type(said["amount"]) is not int:
        return "its amount is not a whole number"
    for part in PARTS:
        if part != "amount" and not isinstance(said[part], str):
            return f"its {part} is not text"
    client, _, step = entry.key.rpartition("/")
    if client != said["client"] or not (step.isascii() and step.isdecimal()) or step != str(int(step)):
        return "its key is not the client's name and the number of the step"
    if said["state"] not in NEXT:
        return f"{said['state']!r} is no state of a payment"
    if said["idempotency_key"] != idempotency_key(entry.job, said["client"]):
        return "its idempotency key is not the one of this job and client"
    return None


def _step_fault(before: Payment | None, step: Payment) -> str | None:
    if before is None:
        return None if (step.step, step.state, step.reference) == (0, "due", "") else "it is the first, and not due"
    if step.step != before.step + 1:
        return f"it is step {step.step} behind step {before.step}"
    if step.state not in NEXT[before.state]:
        return f"what was {before.state} became {step.state}"
    if (step.amount, step.currency) != (before.amount, before.currency):
        return "the amount or the currency is not the one that was due"
    return None


@dataclass(frozen=True)
class Payment:
    """One client's payment at one step.

    step       0 when it is opened, one more with every change
    state      due, sent, confirmed or failed
    amount     in whole minor units; negative: she owes it
    reference  what the payout provider calls it; may be empty
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
        """As it is written down."""
        said = {part: getattr(self, part) for part in PARTS}
        return Item(self.job, "payment", f"{self.client}/{self.step}", said)
