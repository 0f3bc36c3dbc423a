"""`truthfl ledger` and `truthfl settle`: show, check, anchor, export and settle a ledger; write a receipt again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from truthfl.amounts import amount_text, minor_amount_text
from truthfl.cli.contracts import CustomContract
from truthfl.cli.output import console, print_json, table
from truthfl.errors import FAILED, InputError, TruthflError
from truthfl.federation.operator.live_status import read_serving
from truthfl.federation.operator.row_words import describe_command
from truthfl.federation.protocol.final_model import audit, published_files
from truthfl.federation.protocol.job_task import own_task_name
from truthfl.files import write_file
from truthfl.home.record import record_fault
from truthfl.learning.tasks.task_choice import TaskChoice
from truthfl.ledger.backup import (
    anchor_text,
    first_contradiction,
    keep_anchor,
    make_anchor,
    read_anchors,
    usual_anchor_file,
)
from truthfl.ledger.book import Ledger, open_for_reading, open_ledger
from truthfl.ledger.canonical import canonical_bytes, read_document
from truthfl.ledger.checking import check as first_fault
from truthfl.ledger.checking import check_receipt
from truthfl.ledger.entry import Entry
from truthfl.ledger.held_models import unseen_sentence
from truthfl.ledger.job_view import JobView, job_view, select_job
from truthfl.ledger.payments import (
    MARKS,
    Payment,
    advance,
    advance_all,
    payments,
    payout_csv,
    payout_json,
    payout_rows,
    unseen_payments,
)
from truthfl.ledger.receipts import JobReceipts
from truthfl.ledger.settlement import settle as settle_job
from truthfl.ledger.signing import public_line, read_key, read_public_line
from truthfl.ledger.sql.database import read_address
from truthfl.texts import plain

LedgerAddress = Annotated[
    str, typer.Argument(metavar="FILE-or-URL", help="The ledger: a file, or postgresql://user@host/db.")
]
JobName = Annotated[str | None, typer.Option("--job", help="One job of it; all of them unless given.")]


@contextmanager
def sentence_for_malformed_rows(opened_ledger: Ledger) -> Iterator[None]:
    """Turn errors that come from rows that truthfl did not write into one sentence."""
    try:
        yield
    except TruthflError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InputError(
            f"{opened_ledger.name} has rows that truthfl did not write ({type(error).__name__}); "
            "truthfl ledger check names the first."
        ) from None


OperatorKey = Annotated[
    Path | None,
    typer.Option(help="The operator's key; by default the one beside the ledger, or the one that served a job there."),
]


def anchor(
    address: LedgerAddress,
    key: OperatorKey = None,
    out: Annotated[Path | None, typer.Option(help="File to add it to; LEDGER.anchors beside a file.")] = None,
) -> None:
    """Print and keep the signed hash of the last row. Keep a copy on another machine, or give it to others.

    A check with an anchor notices if rows were removed from the ledger's end, or if the ledger was rewritten.

    Example: truthfl ledger anchor served/ledger.db --key keys/operator
    """
    key_file, file = key or usual_key(address), out or usual_anchor_file(address)
    if file is None:
        raise InputError("the ledger is no file; name the file for its anchors with --out.")
    with open_for_reading(address) as opened_ledger:
        print(keep_head(opened_ledger, key_file, file))


def usual_key(address: str) -> Path:
    """The operator's key beside a ledger that is a file, or the one that served a job there.

    Raise `InputError` if there is none.
    """
    where = read_address(address)
    if isinstance(where, Path):
        serving = read_serving(where.parent)
        for file in (where.with_name("operator"), *([] if serving is None else [Path(serving.key)])):
            if file.is_file():
                return file
    raise InputError("there is no key beside the ledger; name the operator's with --key.")


def operator_line(key: Path | None, address: str) -> str:
    """The operator's public key, from their key file, public or private, or the usual one."""
    file = key or usual_key(address)
    return read_public_line(file) if file.suffix == ".pub" else public_line(read_key(file))


def required_jobs(opened_ledger: Ledger, key_file: Path) -> list[str]:
    """The names of the jobs of the operator with this key; raise `InputError` if there are none."""
    jobs = opened_ledger.jobs()
    if not jobs:
        raise InputError(
            f"{opened_ledger.name} has no job of the operator whose key is {key_file}; name theirs with --key."
        )
    return jobs


def require_not_gone_back(opened_ledger: Ledger, address: str) -> None:
    """Raise `InputError` if the ledger contradicts the anchors beside it: sent payments might then seem due."""
    file = usual_anchor_file(address)
    if file is None or not file.exists():
        return
    fault = first_contradiction(read_anchors(file), opened_ledger.rows())
    if fault is not None:
        raise InputError(f"{opened_ledger.name} is not the ledger of {file}: {fault}; nothing is paid from it.")


def keep_head(opened_ledger: Ledger, key_file: Path, file: Path) -> str:
    """Sign the last row and add the anchor to the file; return it as text."""
    head = opened_ledger.head()
    if head is None:
        raise InputError(f"{opened_ledger.name} has no rows yet; there is nothing to anchor.")
    made = make_anchor(head, read_key(key_file))
    keep_anchor(file, made)
    return anchor_text(made)


def receipt(
    address: LedgerAddress,
    client: Annotated[str, typer.Option(help="The client's name.")],
    job: JobName = None,
    out: Annotated[Path | None, typer.Option(help="File to write; standard output unless given.")] = None,
) -> None:
    """Write a client's signed receipt again, for example if they were offline; the bytes are the same each time.

    The client puts the file into the folder `receipts` of their home, where their page checks it.

    Example: truthfl ledger receipt truthfl-run/ledger.db --client Ada --out ada.json
    """
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


def settle(
    address: LedgerAddress,
    job: JobName = None,
    mark: Annotated[str | None, typer.Option(help="Note that payments were sent, confirmed or failed.")] = None,
    client: Annotated[list[str] | None, typer.Option(help="Whose payment; everybody's unless given.")] = None,
    reference: Annotated[str, typer.Option(help="What the payout provider calls it.")] = "",
    key: OperatorKey = None,
    _contract: CustomContract = None,
    json: Annotated[bool, typer.Option("--json", help="The payments as JSON.")] = False,
) -> None:
    """Settle a trained and tested job. However often you call it, everybody is paid once.

    Payments go from due to sent to confirmed or failed; a failed one may be sent again. Without --client, payments that
    cannot get the new mark stay as they are. An amount of 0 or less is not due. Pay for a solo model that is too good
    is not sent, and not in the JSON, until you give truthfl accept. Only rows that the operator's key signed count;
    other operators' jobs are not touched.

    Example: truthfl settle truthfl-run/ledger.db --mark sent --client Ada --reference TX-1
    """
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
            print(f"{plain(payment.client)} stays as is: {payment.state}.")
    if kept:
        print(kept)


def _keep_anchor(opened_ledger: Ledger, address: str, key_file: Path) -> str:
    """Keep an anchor after marking, so that an older copy is noticed; return a sentence about it."""
    file = usual_anchor_file(address)
    if file is None:
        return "No anchor was kept; truthfl ledger anchor makes one, by which a return to an older copy is found."
    keep_head(opened_ledger, key_file, file)
    return f"An anchor was added to {file}; keep a copy on another machine."


LONGEST_FAULT = 1000

ledger = typer.Typer(help="Show, check and export what was promised and paid.", no_args_is_help=True)
ledger.command("anchor")(anchor)
ledger.command("receipt")(receipt)


@ledger.command()
def show(
    address: LedgerAddress,
    job: JobName = None,
    _contract: CustomContract = None,
    rows: Annotated[bool, typer.Option("--rows", help="Every row, one line each.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The rows as JSON.")] = False,
) -> None:
    """Jobs, clients, pay and payments.

    Example: truthfl ledger show truthfl-run/ledger.db
    """
    with open_for_reading(address) as opened_ledger, sentence_for_malformed_rows(opened_ledger):
        names = _job_names(opened_ledger, job)
        entries = [entry for entry in opened_ledger.entries() if entry.job in names]
        if json:
            more = ("salt", "signature", "document")
            print_json([entry.link() | {name: getattr(entry, name) for name in more} for entry in entries])
            return
        if rows:
            for entry in entries:
                names_of_row = f"{plain(entry.job)}  {plain(entry.kind):10}  {plain(entry.key):24}"
                print(f"{entry.sequence:6}  {plain(entry.at)}  {names_of_row}  {plain(entry.hash)[:12]}")
            return
        for name in names:
            _show_job(opened_ledger, job_view(name, opened_ledger.entries(name)))


@ledger.command()
def check(
    address: LedgerAddress,
    receipt: Annotated[
        Path | None,
        typer.Option(help="A client's receipt, compared with the ledger and, in their folder, with their record."),
    ] = None,
    anchor: Annotated[
        Path | None, typer.Option(help="Anchors to compare with the ledger; by default LEDGER.anchors, if it exists.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="The published model (.npy), to recompute the loss.")] = None,
    test: Annotated[Path | None, typer.Option(help="The published test set (.npz), to recompute the loss.")] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="FILE.py:Class", help="The operator's custom task, to recompute the loss."),
    ] = None,
    _contract: CustomContract = None,
    job: JobName = None,
) -> None:
    """Recompute everything: hashes, signatures, commitment, loss, pay; name the first wrong row (exit code 1).

    The loss is recomputed from model and test set: those in `models` beside a ledger that is a file, or those given. A
    job on the operator's custom task needs that task, since code is loaded only from what you name with --task. To
    notice rows removed from the ledger's end, the check needs a receipt, or an anchor made before.

    Example: truthfl ledger check truthfl-run/ledger.db
    """
    own = None if task is None else TaskChoice.of_argument(task)
    if (model is None) != (test is None):
        raise InputError("one of --model and --test is given; the loss is recomputed from both.")
    with open_for_reading(address) as opened_ledger:
        jobs, entries, missing_guards = opened_ledger.all_jobs(), opened_ledger.rows(), opened_ledger.missing_guards()
    names = jobs if job is None else [select_job(jobs, job, opened_ledger.name)]
    entry_fault = first_fault(entries)
    fault = None if entry_fault is None else entry_fault.message
    if fault is None and missing_guards:
        fault = f"triggers that forbid changes of rows were removed or changed: {', '.join(missing_guards)}"
    number = sum(entry.job in names for entry in entries)
    results = [
        f"{number} rows of {len(names)} job{'s' if len(names) != 1 else ''}: the chain, signatures and pay hold."
    ]
    if number < len(entries):
        results[0] += f" So do those of other jobs in the ledger, {len(entries) - number} in all."
    for name in names if fault is None else ():
        view = job_view(name, [entry for entry in entries if entry.job == name])
        fault, sentence = _loss_fault(view, address, model, test, own)
        results += [sentence, *_missing_receipts(view)]
        if fault is not None:
            fault = f"job {name}: {fault}"
            break
    if fault is None:
        fault, sentences = _anchor_fault(address, anchor, entries)
        results += sentences
    if fault is None and receipt is not None:
        fault = _receipt_fault(receipt, entries)
        results.append(f"{receipt}: the receipt holds.")
    if fault is not None:
        print(f"WRONG: {plain(fault, LONGEST_FAULT)}.")
        raise typer.Exit(FAILED)
    print("\n".join(map(plain, results)))


@ledger.command()
def export(
    address: LedgerAddress,
    out: Annotated[Path | None, typer.Option(help="File to write; standard output unless given.")] = None,
    form: Annotated[str, typer.Option("--format", help="csv or json.")] = "csv",
    job: JobName = None,
    key: OperatorKey = None,
) -> None:
    """Payments for a payout provider, each with its permanent idempotency key.

    Only rows that the operator's key signed count, so nobody is paid for what others wrote into the database. The
    public key (.pub) is enough. Pay for a solo model that is too good is left out, and named, until you give truthfl
    accept.

    Example: truthfl ledger export truthfl-run/ledger.db --out payout.csv
    """
    writers = {"csv": payout_csv, "json": payout_json}
    if form not in writers:
        raise InputError(f"format is {form!r}; it must be csv or json.")
    open_for_reading(address).close()  # reports first if there is no ledger
    operator = operator_line(key, address)
    with open_for_reading(address, operator) as opened_ledger, sentence_for_malformed_rows(opened_ledger):
        require_not_gone_back(opened_ledger, address)
        names = required_jobs(opened_ledger, key or usual_key(address))
        names = names if job is None else [select_job(names, job, opened_ledger.name)]
        unseen = [(name, one.client) for name in names for one in unseen_payments(opened_ledger, name)]
        text = writers[form]([row for name in names for row in payout_rows(opened_ledger, name)])
    for name, client in unseen:
        print(unseen_sentence(name, client), file=sys.stderr)
    if out is None:
        print(text, end="")
        return
    write_file(out, text)


def _job_names(opened_ledger: Ledger, job: str | None) -> list[str]:
    """The names of all jobs in the ledger, or this one only."""
    jobs = opened_ledger.jobs()
    return jobs if job is None else [select_job(jobs, job, opened_ledger.name)]


def _show_job(opened_ledger: Ledger, view: JobView) -> None:
    payment_to = {payment.client: payment for payment in payments(opened_ledger, view.name)}
    lines = []
    agreement = view.agreement
    for offer in agreement.offers if agreement is not None else ():
        name = offer.client.name
        payment = payment_to.get(name)
        lines.append(
            [
                name,
                str(offer.client.batch_size),
                f"{view.delivered[name]} of {view.asked_by_contract[name] if view.finished else offer.job.rounds}",
                amount_text(offer.expected_pay, view.minor_units),
                "" if payment is None else minor_amount_text(payment.amount, view.minor_units),
                "" if payment is None else payment.state,
            ]
        )
    title = f"job {view.name}: {_stage(view)}"
    unit = agreement.terms.currency if agreement is not None else "money"
    columns = ("client", "batch", "rounds delivered", f"expected pay ({unit})", f"pay ({unit})", "payment")
    screen = console()
    screen.print(table(title, columns, lines, text=(0, 5)))
    for entry in view.commands:
        screen.print(f"{plain(entry.at)[:16]} {plain(describe_command(entry.document))}")
    if view.rejections:
        screen.print(f"{len(view.rejections)} rejections; the last: {plain(view.rejections[-1].document['reason'])}")


def _stage(view: JobView) -> str:
    if view.ended is not None:
        return _ended_stage(view)
    if view.settlements:
        loss = "" if view.test is None else f", test loss {view.test.document['loss']:.4f}"
        return f"settled{loss}"
    if view.agreement is not None:
        return f"{len(view.rounds)} of {view.agreement.terms.rounds} rounds trained"
    return f"{len(view.enrolments)} clients enrolled, {len(view.answers)} answers to {len(view.offers)} offers"


def _ended_stage(view: JobView) -> str:
    """The stage of a job that the operator ended."""
    if view.agreement is None:
        return "ended by the operator before there was a contract"
    after = f"ended by the operator after {len(view.rounds)} of {view.agreement.terms.rounds} rounds"
    loss = "" if view.test is None else f", test loss {view.test.document['loss']:.4f}"
    loss = loss if view.lost_round is None else ", model lost"
    return f"{after}{loss}{', settled' if view.settlements else ''}"


def _loss_fault(
    view: JobView, address: str, model: Path | None, test: Path | None, own: TaskChoice | None
) -> tuple[str | None, str]:
    if view.test is None:
        return None, f"Job {view.name} has not been tested yet."
    if model is None or test is None:
        model, test = published_files(Path(address).parent, view.name)
        if "://" in address or not model.exists() or not test.exists():
            return None, f"Job {view.name}: the loss was not recomputed; its model and test set are not here."
    needed = None if view.agreement is None else own_task_name(view.agreement.terms)
    if needed is not None and (own is None or own.name != needed):
        return None, f"Job {view.name}: the loss was not recomputed; its task is {needed}: say --task FILE.py:{needed}."
    return audit(view, model, test, own), f"Job {view.name}: the loss {view.test.document['loss']:.6f} was recomputed."


def _missing_receipts(view: JobView) -> list[str]:
    """A sentence about settled clients without a receipt in the ledger, if there are any."""
    names = [name for name in view.settlements if name not in view.receipts]
    if not names:
        return []
    return [f"Job {view.name}: {', '.join(names)} got no receipt yet; the server writes them, or they were removed."]


def _anchor_fault(address: str, given: Path | None, entries: Sequence[Entry]) -> tuple[str | None, list[str]]:
    """The first contradiction of the anchors, in the given file or the usual one; what to say if there is none."""
    file = given or usual_anchor_file(address)
    if file is None or (given is None and not file.exists()):
        return None, []
    anchors = read_anchors(file)
    number = len(anchors)
    return first_contradiction(anchors, entries), [
        f"{file}: {'the anchor holds' if number == 1 else f'all {number} anchors hold'}."
    ]


def _receipt_fault(receipt: Path, entries: Sequence[Entry]) -> str | None:
    try:
        text = receipt.read_bytes()
    except OSError as error:
        raise InputError(f"{receipt} cannot be read: {error.strerror}.") from None
    document = read_document(text, str(receipt))
    fault = check_receipt(document, entries)
    home = receipt.absolute().parent.parent
    if fault is None and (home / "receipts" / receipt.name).exists() and (home / "offers").is_dir():
        fault = record_fault(home, document["document"])
    return None if fault is None else f"{receipt}: {fault}"
