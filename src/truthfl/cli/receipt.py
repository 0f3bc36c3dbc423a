"""`truthfl ledger receipt`: make a client's receipt again from the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from truthfl.cli.ledger_options import JobName, LedgerAddress, sentence_for_malformed_rows
from truthfl.errors import InputError
from truthfl.files import write_file


def receipt(
    address: LedgerAddress,
    client: Annotated[str, typer.Option(help="The client's name.")],
    job: JobName = None,
    out: Annotated[Path | None, typer.Option(help="File to write; standard output unless given.")] = None,
) -> None:
    """A client's signed receipt again, for example for one who was offline; the same bytes each time.

    She puts the file into the folder `receipts` of her home, where her page checks it.

    Example: truthfl ledger receipt truthfl-run/ledger.db --client Ada --out ada.json
    """
    from truthfl.ledger.book import open_for_reading
    from truthfl.ledger.canonical import canonical_bytes
    from truthfl.ledger.job_receipts import JobReceipts
    from truthfl.ledger.job_view import job_view, select_job

    with open_for_reading(address) as ledger:
        jobs = [entry.job for entry in ledger.entries(kind="receipt") if entry.key == client]
        if not jobs:
            raise InputError(f"{ledger.name} has no receipt of {client!r}; it is made when a job is settled.")
        name = select_job(jobs, job, f"{client} in {ledger.name}")
        with sentence_for_malformed_rows(ledger):
            view = job_view(name, ledger.entries(name))
            offers = view.agreement.offers if view.agreement is not None else ()
            offer = next((offer for offer in offers if offer.client.name == client), None)
            if offer is None:
                raise InputError(f"{client} has no contract in job {name}; truthfl ledger check says what is wrong.")
            text = canonical_bytes(JobReceipts(view, ledger.rows()).recorded(offer)).decode()
    if out is None:
        print(text)
        return
    write_file(out, text, private=True)
