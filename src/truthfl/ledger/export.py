"""Payments as a payout provider or a bookkeeper takes them: CSV, JSON. Looks at `payments`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from truthfl.ledger.book import Ledger
from truthfl.ledger.payments import Payment, payments

FORMULA_BEGINNINGS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four: the same, full width


@dataclass(frozen=True)
class PayoutRow:
    """One payment as it stands. amount_minor: in whole minor units of the currency; negative: the client owes it."""

    idempotency_key: str
    job: str
    client: str
    amount_minor: int
    currency: str
    state: str
    reference: str


COLUMNS = tuple(field.name for field in fields(PayoutRow))


def payout_rows(ledger: Ledger, job: str | None = None) -> list[PayoutRow]:
    """The payments of one job, or of all, the oldest job first."""
    jobs = ledger.jobs() if job is None else [job]
    return [_row(payment) for name in jobs for payment in payments(ledger, name)]


def payout_csv(rows: Iterable[PayoutRow]) -> str:
    """A line of column names, then one line each.

    A client may call herself "=HYPERLINK(…)", and a spreadsheet would run that. So a text that begins, white space
    aside, with one of = + - @ gets an apostrophe in front, as does one that begins with a tab or a new line;
    amounts are numbers and stay as they are. For texts to the letter, take the JSON.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow([_harmless(cell) if isinstance(cell, str) else cell for cell in asdict(row).values()])
    return text.getvalue()


def payout_json(rows: Iterable[PayoutRow]) -> str:
    """A list with an object for each payment."""
    return json.dumps([asdict(row) for row in rows], indent=2, ensure_ascii=False) + "\n"


def _row(payment: Payment) -> PayoutRow:
    return PayoutRow(
        payment.idempotency_key,
        payment.job,
        payment.client,
        payment.amount,
        payment.currency,
        payment.state,
        payment.reference,
    )


def _harmless(text: str) -> str:
    runs = text.lstrip().startswith(FORMULA_BEGINNINGS) or text.startswith(("\t", "\r", "\n"))
    return f"'{text}" if runs else text
