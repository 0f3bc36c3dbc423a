"""The ledger: signed documents, and an append-only table of hash-chained entries in SQL.

A public name's module is imported when the name is first used, so `import truthfl.ledger` does not load SQLAlchemy. No
public name is also the name of a module in this package. So the function `payments.payments` is named `payments_of`.

    open_ledger      open the ledger in a file or a PostgreSQL database for writing; create it if it does not exist
    open_for_reading open an existing ledger without changing it
    Ledger           an open ledger
    check            the first fault in all entries of a ledger
    check_receipt    the first fault of a receipt, by itself and compared with a ledger's entries
    receipt_fault    the first fault of a receipt, by itself
    view_of_job      a job's entries by kind: offers, rounds, test, settlements, receipts
    settle           compute and write each client's pay
    payments_of      current state of each payment of a job
    advance_payment  record that a payment was sent, confirmed or failed
    payout_rows      payments for a payout provider, each with its idempotency key
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truthfl.ledger.book import Ledger, open_for_reading, open_ledger
    from truthfl.ledger.checking import check, check_receipt
    from truthfl.ledger.job_view import job_view as view_of_job
    from truthfl.ledger.payments import advance as advance_payment
    from truthfl.ledger.payments import payments as payments_of
    from truthfl.ledger.payments import payout_rows
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

_TARGETS = {  # public name: module and attribute
    "Ledger": ("book", "Ledger"),
    "advance_payment": ("payments", "advance"),
    "check": ("checking", "check"),
    "check_receipt": ("checking", "check_receipt"),
    "open_for_reading": ("book", "open_for_reading"),
    "open_ledger": ("book", "open_ledger"),
    "payments_of": ("payments", "payments"),
    "payout_rows": ("payments", "payout_rows"),
    "receipt_fault": ("receipts", "receipt_fault"),
    "settle": ("settlement", "settle"),
    "view_of_job": ("job_view", "job_view"),
}


def __getattr__(name: str) -> object:
    if name not in _TARGETS:
        raise AttributeError(f"module 'truthfl.ledger' has no attribute {name!r}")
    module, attribute = _TARGETS[name]
    return getattr(import_module(f"truthfl.ledger.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
