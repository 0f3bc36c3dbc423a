"""What was promised and paid: documents, signatures, an append-only chained book in SQL. Imports the mechanism.

The names below are public and loaded when they are asked for, so that importing this package alone loads no SQLAlchemy.
No public name is that of a module in here: the function `payments` of the module `payments` is `payments_of`.

    open_ledger      the ledger in a file or a PostgreSQL database, to write; made if it is not there
    open_for_reading the ledger that is there; nothing is made or changed
    Ledger           what both of them give
    check            the first fault in all entries of a ledger
    check_receipt    what is wrong with a receipt, by itself and against a ledger's entries
    receipt_fault    what is wrong with a receipt, by itself
    view_of_job      what a ledger says of one job: offers, rounds, test, settlements, receipts
    settle           write what each client of a job is paid
    payments_of      the payments of a job, as they stand
    advance_payment  note that a payment was sent, confirmed or failed
    payout_rows      payments for a payout provider, each with its idempotency key
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truthfl.ledger.book import Ledger, open_for_reading, open_ledger
    from truthfl.ledger.checking import check, check_receipt
    from truthfl.ledger.export import payout_rows
    from truthfl.ledger.job_view import job_view as view_of_job
    from truthfl.ledger.payments import advance as advance_payment
    from truthfl.ledger.payments import payments as payments_of
    from truthfl.ledger.receipts import receipt_fault
    from truthfl.ledger.settlement import settle

__all__ = [
    "Ledger",
    "advance_payment",
    "check",
    "check_receipt",
    "open_for_reading",
    "open_ledger",
    "payments_of",
    "payout_rows",
    "receipt_fault",
    "settle",
    "view_of_job",
]

_WHERE = {
    "Ledger": ("book", "Ledger"),
    "advance_payment": ("payments", "advance"),
    "check": ("checking", "check"),
    "check_receipt": ("checking", "check_receipt"),
    "open_for_reading": ("book", "open_for_reading"),
    "open_ledger": ("book", "open_ledger"),
    "payments_of": ("payments", "payments"),
    "payout_rows": ("export", "payout_rows"),
    "receipt_fault": ("receipts", "receipt_fault"),
    "settle": ("settlement", "settle"),
    "view_of_job": ("job_view", "job_view"),
}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'truthfl.ledger' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(import_module(f"truthfl.ledger.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
