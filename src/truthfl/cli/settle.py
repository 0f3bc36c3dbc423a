"""`truthfl settle`: settle a job and record the state of its payments."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.anchor import OperatorKey, keep_head, require_not_gone_back, required_jobs, usual_key
from truthfl.cli.ledger_options import JobName, LedgerAddress, sentence_for_malformed_rows
from truthfl.cli.output import console, print_json, table
from truthfl.errors import InputError
from truthfl.texts import plain

if TYPE_CHECKING:
    from truthfl.ledger.book import Ledger


def settle(
    address: LedgerAddress,
    job: JobName = None,
    mark: Annotated[str | None, typer.Option(help="Note that payments were sent, confirmed or failed.")] = None,
    client: Annotated[list[str] | None, typer.Option(help="Whose payment; everybody's unless given.")] = None,
    reference: Annotated[str, typer.Option(help="What the payout provider calls it.")] = "",
    key: OperatorKey = None,
    json: Annotated[bool, typer.Option("--json", help="The payments as JSON.")] = False,
) -> None:
    """Settle a job that was trained and tested, however often it is called: everybody is paid once.

    Payments go from due to sent to confirmed or failed; a failed one may be sent again. Without --client, those that
    cannot become what is marked stay as they are. An amount of 0 or less is not due. What is due for a solo model that
    is too good is not sent, nor in the JSON, until you say truthfl accept. Only rows that the operator's key signed
    count; other operators' jobs are not touched.

    Example: truthfl settle truthfl-run/ledger.db --mark sent --client Ada --reference TX-1
    """
    from truthfl.ledger.book import open_for_reading, open_ledger
    from truthfl.ledger.export import payout_rows
    from truthfl.ledger.holds import unseen_sentence
    from truthfl.ledger.job_view import select_job
    from truthfl.ledger.money import minor_amount_text
    from truthfl.ledger.payments import MARKS, Payment, advance, advance_all, payments, unseen_payments
    from truthfl.ledger.settlement import settle as settle_job
    from truthfl.ledger.signing import read_key

    if mark is not None and mark not in MARKS:
        raise InputError(f"mark is {mark!r}; it must be sent, confirmed or failed.")
    open_for_reading(address).close()  # fails if there is no ledger; open_ledger would make one
    key_file = key or usual_key(address)
    with open_ledger(address, read_key(key_file)) as ledger, sentence_for_malformed_rows(ledger):
        require_not_gone_back(ledger, address)
        name = select_job(required_jobs(ledger, key_file), job, ledger.name)
        settle_job(ledger, name)
        clients = [payment.client for payment in payments(ledger, name)]
        for payee in client or ():
            if payee not in clients:
                raise InputError(f"client is {payee!r}; job {name} pays {', '.join(clients)}.")
        skipped: list[Payment] = []
        if mark is not None and client:
            for payee in set(client) & {one.client for one in unseen_payments(ledger, name)} if mark == "sent" else ():
                raise InputError(unseen_sentence(name, payee))
            for payee in client:
                advance(ledger, name, payee, mark, reference)
        elif mark is not None:
            _, skipped = advance_all(ledger, name, mark, reference)
        unseen = [payment.client for payment in unseen_payments(ledger, name)]
        current = payout_rows(ledger, name, unseen=not json)
        kept = "" if mark is None else _keep_anchor(ledger, address, key_file)
    for payee in unseen:
        print(unseen_sentence(name, payee), file=sys.stderr)
    if json:
        print_json(current)
        return
    rows = [
        [row.client, minor_amount_text(row.amount_minor, row.minor_units), row.currency, row.state, row.reference]
        for row in current
    ]
    console().print(
        table(f"Payments of job {name}", ("client", "amount", "", "state", "reference"), rows, text=(0, 2, 3, 4))
    )
    for payment in skipped:
        if payment.client not in unseen:
            print(f"{plain(payment.client)} was left as she is: {payment.state}.")
    if kept:
        print(kept)


def _keep_anchor(opened_ledger: Ledger, address: str, key_file: Path) -> str:
    """Keep an anchor of what was marked, so that a copy from before it is found; return a sentence on it."""
    from truthfl.ledger.anchors import usual_anchor_file

    file = usual_anchor_file(address)
    if file is None:
        return "No anchor was kept; truthfl ledger anchor makes one, by which a return to an older copy is found."
    keep_head(opened_ledger, key_file, file)
    return f"An anchor was added to {file}; keep a copy on another machine."
