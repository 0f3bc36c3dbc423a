"""`truthfl settle`: settle a job and record the state of its payments.

Imports `output`, `cli.ledger` and, when called, the ledger.
"""

from __future__ import annotations

from typing import Annotated

import typer

from truthfl.cli.ledger import JobName, LedgerAddress
from truthfl.cli.output import console, print_json, table
from truthfl.errors import InputError


def settle(
    address: LedgerAddress,
    job: JobName = None,
    mark: Annotated[str | None, typer.Option(help="Note that payments were sent, confirmed or failed.")] = None,
    client: Annotated[list[str] | None, typer.Option(help="Whose payment; everybody's unless given.")] = None,
    reference: Annotated[str, typer.Option(help="What the payout provider calls it.")] = "",
    json: Annotated[bool, typer.Option("--json", help="The payments as JSON.")] = False,
) -> None:
    """Settle a job that was trained and tested, however often it is called: everybody is paid once.

    Payments go from due to sent to confirmed or failed; a failed one may be sent again.

    Example: truthfl settle truthfl-run/ledger.db --mark sent --client Ada --reference TX-1
    """
    from truthfl.ledger.book import open_for_reading, open_ledger
    from truthfl.ledger.job_view import select_job
    from truthfl.ledger.payments import advance, payments
    from truthfl.ledger.settlement import settle as settle_job

    if mark not in (None, "sent", "confirmed", "failed"):
        raise InputError(f"mark is {mark!r}; it must be sent, confirmed or failed.")
    open_for_reading(address).close()  # fails if there is no ledger; open_ledger would make one
    with open_ledger(address) as ledger:
        name = select_job(ledger.jobs(), job, ledger.name)
        settle_job(ledger, name)
        clients = [payment.client for payment in payments(ledger, name)]
        for payee in client or ():
            if payee not in clients:
                raise InputError(f"client is {payee!r}; job {name} pays {', '.join(clients)}.")
        if mark is not None:
            for payee in client or clients:
                advance(ledger, name, payee, mark, reference)
        current = payments(ledger, name)
    if json:
        print_json(current)
        return
    rows = [
        [payment.client, f"{payment.amount:,}", payment.currency, payment.state, payment.reference]
        for payment in current
    ]
    console().print(
        table(f"Payments of job {name}", ("client", "amount", "", "state", "reference"), rows, text=(0, 2, 3, 4))
    )
