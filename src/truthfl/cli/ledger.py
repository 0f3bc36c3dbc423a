"""`truthfl ledger`: show, check and export what was promised and paid. What it needs is loaded when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.output import console, print_json, table
from truthfl.cli.progress import FAILED
from truthfl.errors import InputError
from truthfl.files import write_file

if TYPE_CHECKING:
    from truthfl.ledger.book import Ledger
    from truthfl.ledger.entry import Entry
    from truthfl.ledger.job_view import JobView

Where = Annotated[str, typer.Argument(metavar="FILE-or-URL", help="The ledger: a file, or postgresql://user@host/db.")]
JobName = Annotated[str | None, typer.Option("--job", help="One job of it; all of them unless given.")]

ledger = typer.Typer(help="Show, check and export what was promised and paid.", no_args_is_help=True)


@ledger.command()
def show(
    where: Where,
    job: JobName = None,
    rows: Annotated[bool, typer.Option("--rows", help="Every row, one line each.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The rows as JSON.")] = False,
) -> None:
    """Jobs, clients, pay and payments.

    Example: truthfl ledger show truthfl-run/ledger.db
    """
    from truthfl.ledger.book import open_for_reading
    from truthfl.ledger.job_view import job_view

    with open_for_reading(where) as book:
        names = _jobs(book, job)
        entries = [entry for entry in book.entries() if entry.job in names]
        if json:
            print_json([entry.link() | {"document": entry.document} for entry in entries])
            return
        if rows:
            for entry in entries:
                print(
                    f"{entry.sequence:6}  {entry.at}  {entry.job}  {entry.kind:10}  {entry.key:24}  {entry.hash[:12]}"
                )
            return
        for name in names:
            _show_job(book, job_view(name, book.entries(name)))


@ledger.command()
def check(
    where: Where,
    receipt: Annotated[Path | None, typer.Option(help="A client's receipt, held against the ledger.")] = None,
    model: Annotated[Path | None, typer.Option(help="The published model (.npy), to recompute the loss.")] = None,
    test: Annotated[Path | None, typer.Option(help="The published test set (.npz), to recompute the loss.")] = None,
    job: JobName = None,
) -> None:
    """Recompute everything: hashes, signatures, commitment, loss, pay; name the first wrong row (exit code 1).

    The loss is recomputed where model and test set are: in `models` beside a ledger that is a file, or as given.

    Example: truthfl ledger check truthfl-run/ledger.db
    """
    from truthfl.ledger.book import open_for_reading
    from truthfl.ledger.checking import check as first_fault
    from truthfl.ledger.job_view import job_view

    if (model is None) != (test is None):
        raise InputError("one of --model and --test is given; the loss is recomputed from both.")
    with open_for_reading(where) as book:
        names = _jobs(book, job)
        entries = book.entries()
    fault = first_fault(entries)
    wrong = None if fault is None else fault.message
    told = [
        f"{len(entries)} rows of {len(names)} job{'s' if len(names) != 1 else ''}: the chain, signatures and pay hold."
    ]
    for name in names if wrong is None else ():
        found = job_view(name, [entry for entry in entries if entry.job == name])
        wrong, sentence = _loss_fault(found, where, model, test)
        told.append(sentence)
        if wrong is not None:
            wrong = f"job {name}: {wrong}"
            break
    if wrong is None and receipt is not None:
        wrong = _receipt_fault(receipt, entries)
        told.append(f"{receipt}: the receipt holds.")
    if wrong is not None:
        print(f"WRONG: {wrong}.")
        raise typer.Exit(FAILED)
    print("\n".join(told))


@ledger.command()
def export(
    where: Where,
    out: Annotated[Path | None, typer.Option(help="File to write; standard output unless given.")] = None,
    form: Annotated[str, typer.Option("--format", help="csv or json.")] = "csv",
    job: JobName = None,
) -> None:
    """Payments for a payout provider, each with its permanent idempotency key.

    Example: truthfl ledger export truthfl-run/ledger.db --out payout.csv
    """
    from truthfl.ledger.book import open_for_reading
    from truthfl.ledger.export import payout_csv, payout_json, payout_rows

    writers = {"csv": payout_csv, "json": payout_json}
    if form not in writers:
        raise InputError(f"format is {form!r}; it must be csv or json.")
    with open_for_reading(where) as book:
        names = _jobs(book, job)
        text = writers[form]([row for name in names for row in payout_rows(book, name)])
    if out is None:
        print(text, end="")
        return
    write_file(out, text)


def _jobs(book: Ledger, asked: str | None) -> list[str]:
    from truthfl.ledger.job_view import select_job

    jobs = book.jobs()
    return jobs if asked is None else [select_job(jobs, asked, book.name)]


def _show_job(book: Ledger, found: JobView) -> None:
    from truthfl.ledger.payments import payments

    paid = {one.client: one for one in payments(book, found.name)}
    lines = []
    agreed = found.agreement
    for offer in agreed.offers if agreed is not None else ():
        name = offer.client.name
        payment = paid.get(name)
        lines.append(
            [
                name,
                str(offer.client.batch_size),
                f"{found.delivered[name]} of {found.asked[name] if found.finished else offer.job.rounds}",
                f"{offer.expected_pay * offer.job.minor_units:,.0f}",
                "" if payment is None else f"{payment.amount:,}",
                "" if payment is None else payment.state,
            ]
        )
    title = f"job {found.name}: {_stage(found)}"
    unit = agreed.terms.currency if agreed is not None else "money"
    columns = ("client", "batch", "rounds delivered", f"expected pay ({unit})", "pay", "payment")
    screen = console()
    screen.print(table(title, columns, lines, text=(0, 5)))
    if found.rejections:
        screen.print(f"{len(found.rejections)} rejections; the last: {found.rejections[-1].document['reason']}")


def _stage(found: JobView) -> str:
    if found.settlements:
        loss = "" if found.test is None else f", test loss {found.test.document['loss']:.4f}"
        return f"settled{loss}"
    if found.agreement is not None:
        return f"{len(found.rounds)} of {found.agreement.terms.rounds} rounds trained"
    return f"{len(found.enrolments)} clients enrolled, {len(found.answers)} answers to {len(found.offers)} offers"


def _loss_fault(found: JobView, where: str, model: Path | None, test: Path | None) -> tuple[str | None, str]:
    from truthfl.federation.protocol.audit import audit, published

    if found.test is None:
        return None, f"Job {found.name} has not been tested yet."
    if model is None or test is None:
        model, test = published(Path(where).parent, found.name)
        if "://" in where or not model.exists() or not test.exists():
            return None, f"Job {found.name}: the loss was not recomputed; its model and test set are not here."
    return audit(found, model, test), f"Job {found.name}: the loss {found.test.document['loss']:.6f} was recomputed."


def _receipt_fault(receipt: Path, entries: Sequence[Entry]) -> str | None:
    from truthfl.ledger.canonical import read_document
    from truthfl.ledger.checking import check_receipt

    try:
        text = receipt.read_bytes()
    except OSError as error:
        raise InputError(f"{receipt} cannot be read: {error.strerror}.") from None
    wrong = check_receipt(read_document(text, str(receipt)), entries)
    return None if wrong is None else f"{receipt}: {wrong}"
