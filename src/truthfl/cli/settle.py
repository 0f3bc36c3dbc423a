"""`truthfl settle`: pay once, and note how the payments go. What it needs is loaded when it is called."""

from __future__ import annotations

from typing import Annotated

import typer

from truthfl.cli.ledger import JobName, Where
from truthfl.cli.output import console, print_json, table
from truthfl.errors import InputError


def settle(
    where: Where,
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
    from truthfl.ledger.settlement import settle as settle_once

    if mark not in (None, "sent", "confirmed", "failed"):
        raise InputError(f"mark is {mark!r}; it must be sent, confirmed or failed.")
    open_for_reading(where).close()  # a ledger that is not there is not made
    with open_ledger(where) as book:
        name = select_job(book.jobs(), job, book.name)
        settle_once(book, name)
        known = [one.client for one in payments(book, name)]
        for whom in client or ():
            if whom not in known:
                raise InputError(f"client is {whom!r}; job {name} pays {', '.join(known)}.")
        if mark is not None:
            for whom in client or known:
                advance(book, name, whom, mark, reference)
        found = payments(book, name)
    if json:
        print_json(found)
        return
    rows = [[one.client, f"{one.amount:,}", one.currency, one.state, one.reference] for one in found]
    console().print(
        table(f"Payments of job {name}", ("client", "amount", "", "state", "reference"), rows, text=(0, 2, 3, 4))
    )
