"""Payments as CSV and JSON, for payout providers and accounting."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from truthfl.ledger.book import Ledger
from truthfl.ledger.job_view import job_view
from truthfl.ledger.payments import Payment, payments, unseen_payments
from truthfl.texts import csv_text


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
