"""Payments as CSV and JSON, for payout providers and accounting. Imports `book`, `job_view`, `payments`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from truthfl.ledger.book import Ledger
from truthfl.ledger.job_view import job_view
from truthfl.ledger.payments import Payment, payments

FORMULA_PREFIXES = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four: the same, full width


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


def payout_rows(ledger: Ledger, job: str | None = None) -> list[PayoutRow]:
    """The payments of one job, or of all, the oldest job first."""
    jobs = ledger.jobs() if job is None else [job]
    return [row for name in jobs for row in _rows(ledger, name)]


def payout_csv(rows: Iterable[PayoutRow]) -> str:
    """CSV with a header and one line per payment, safe to open in a spreadsheet.

    A client may call herself "=HYPERLINK(…)", which a spreadsheet would execute. So a text that begins with one of
    = + - @ (after white space), a tab or a line break gets an apostrophe in front. The JSON has the unchanged texts.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_escaped(cell) if isinstance(cell, str) else cell for cell in asdict(row).values()])
    return text.getvalue()


def payout_json(rows: Iterable[PayoutRow]) -> str:
    """A JSON list with an object for each payment."""
    return json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False) + "\n"


def _rows(ledger: Ledger, job: str) -> list[PayoutRow]:
    minor_units = job_view(job, ledger.entries(job)).minor_units
    return [_row(payment, minor_units) for payment in payments(ledger, job)]


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


def _escaped(text: str) -> str:
    is_formula = text.lstrip().startswith(FORMULA_PREFIXES) or text.startswith(("\t", "\r", "\n"))
    return f"'{text}" if is_formula else text
