"""`truthfl serve`: run a job with participants on other machines."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.exit_codes import FAILED, INTERRUPTED, SERVICE_FAILED
from truthfl.errors import InputError, ServiceError, TruthflError
from truthfl.files import make_private_folder
from truthfl.texts import plain_lines

if TYPE_CHECKING:
    from truthfl.federation.protocol.kept_jobs import KeptJob
    from truthfl.job import DataJob
    from truthfl.ledger.book import Ledger


ROWS_SHOWN = 40
MOST_MINUTES = 60 * 24 * 366


def serve(
    job_file: Annotated[
        Path, typer.Argument(metavar="JOB.toml", help="The job; its clients are known by their names.")
    ],
    out: Annotated[Path, typer.Option(help="The operator's folder: ledger, secrets, checkpoints, models.")] = Path(
        "truthfl-serve"
    ),
    keys: Annotated[
        Path | None, typer.Option(help="Folder that truthfl keys server wrote; without it, loopback without TLS.")
    ] = None,
    participants: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the participants' public keys, NAME.pub each; participants in the operator's folder."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8000,
    ledger: Annotated[str | None, typer.Option(help="File or postgresql:// address; ledger.db in the folder.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="To repeat a job exactly; whoever knows it knows the test draw.")
    ] = None,
    contract: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Another contract than the job's, for example: --contract lceme."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="Begin another job in a folder that has one: with pay of its own.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Send the offers of the plan without asking; it is shown all the same.")
    ] = False,
    page: Annotated[
        bool | None, typer.Option(help="Open your page, on this machine alone; at a terminal unless --no-page.")
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the page's address, open nothing.")] = False,
    metrics: Annotated[
        int | None, typer.Option(metavar="PORT", min=0, max=65535, help="Prometheus metrics at this loopback port.")
    ] = None,
    log: Annotated[str, typer.Option(metavar="FORMAT", help="What is printed: text, or json for programs.")] = "text",
    linger: Annotated[
        float,
        typer.Option(metavar="MINUTES", help="How long to stay after the end for those who have no receipt yet."),
    ] = 10.0,
) -> None:
    """Listen for participants and run a job with them: enrol, plan, offer, label, audition, train, test, pay.

    When the plan is made, you see who would be asked what for how much, and say whether these offers are sent: here,
    on your page, or with truthfl approve. A job
    that was interrupted goes on as it was begun: give the same command again. After its end the same command shows
    the result, and delivers receipts to those who have none yet.

    Example: truthfl serve hospital.toml --keys keys --participants people --host fl.example.org
    """
    from truthfl.cli.job_log import require_format
    from truthfl.cli.serving import ServeChoices, serve_job
    from truthfl.federation.deployed.job_server import require_can_listen
    from truthfl.federation.protocol.kept_jobs import JobSource, choose_job
    from truthfl.federation.protocol.operator_folder import keep_ledger_address, kept_key, lock_folder
    from truthfl.federation.protocol.receipt_delivery import owed_receipts
    from truthfl.federation.protocol.serving_file import ServingInfo, write_serving
    from truthfl.files import require_writable
    from truthfl.job import read_job_text
    from truthfl.ledger.book import open_ledger
    from truthfl.ledger.signing import public_line

    if seed is not None and seed < 0:
        raise InputError(f"seed is {seed}; it must be at least 0.")
    if not 0 <= linger <= MOST_MINUTES:
        raise InputError(f"linger is {linger:g}; it must be a number of minutes from 0 to {MOST_MINUTES:,}.")
    if not 0 < port < 65536:
        raise InputError(f"port is {port}; it must be from 1 to 65535.")
    source = JobSource(read_job_text(job_file), job_file.parent, str(job_file), contract or "", seed)
    _require_distinct_keys(participants, source.job())
    people = participants or out / "participants"
    require_format(log)
    with_page = (sys.stdin.isatty() and sys.stdout.isatty()) if page is None else page
    require_can_listen(host, port, keys)
    make_private_folder(out)
    require_writable(out)
    ledger_address = ledger or str((out / "ledger.db").resolve())
    operator_key = (out if keys is None else keys) / "operator"
    with lock_folder(out), open_ledger(ledger_address, kept_key(operator_key)) as opened:
        kept = choose_job(out, opened, source, new=new)
        _tell_differences(kept, job_file, log)
        show_result = partial(_show_result, opened, kept.name, out, log)
        delivers = linger > 0 and bool(owed_receipts(opened, kept.name))
        if kept.complete and not delivers:
            show_result()
        else:
            keep_ledger_address(out, ledger_address)
            serving = ServingInfo(
                kept.name,
                ledger_address,
                str(operator_key.resolve()),
                host,
                port,
                "" if keys is None else str((keys / "ca.crt").resolve()),
                str(people.resolve()),
                public_line(kept_key(operator_key)),
            )
            write_serving(out, serving)
            choices = ServeChoices(not yes, with_page, not no_browser, metrics, log, linger)
            try:
                serve_job(kept, opened, out, serving, keys, choices, show_result)
            except (KeyboardInterrupt, typer.Abort):
                print("truthfl: interrupted; the same command goes on where it was.", file=sys.stderr)
                raise typer.Exit(INTERRUPTED) from None
            except TruthflError as error:
                print(f"truthfl: the job did not end well: {plain_lines(error)}", file=sys.stderr)
                raise typer.Exit(SERVICE_FAILED if isinstance(error, ServiceError) else FAILED) from None


def _tell_differences(kept: KeptJob, job_file: Path, log: str) -> None:
    """Say how the job is another one than its file describes today."""
    from truthfl.cli.narrator import tell

    if kept.complete:
        tell(log, "complete", kept.name, f"job {kept.name} is complete; --new begins another.")
    elif not kept.is_new:
        tell(log, "resumed", kept.name, f"going on with job {kept.name} as it was begun.")
        for difference in kept.differences:
            tell(log, "difference", kept.name, f"{job_file} differs: {difference}.")
        if kept.differences:
            tell(log, "difference", kept.name, "these changes have no effect; --new begins another job with them.")


def _show_result(ledger: Ledger, name: str, out: Path, log_format: str) -> None:
    """Show the table and the sentences of a job that is over, and write its report."""
    import shlex

    from truthfl import __version__
    from truthfl.cli.job_log import JSON
    from truthfl.cli.narrator import tell
    from truthfl.cli.output import console, table
    from truthfl.federation.protocol.served_report import client_rows, columns, summary_sentences, write_served_report
    from truthfl.ledger.address import shown_arguments
    from truthfl.ledger.job_view import job_view

    view = job_view(name, ledger.entries(name))
    command = shlex.join(["truthfl", *shown_arguments(sys.argv[1:])])
    report = write_served_report(view, out, command, __version__)
    sentences = summary_sentences(view)
    if log_format == JSON:
        for sentence in sentences:
            tell(log_format, "result", name, sentence)
        return
    screen = console()
    if report is not None:
        rows = client_rows(view)
        shown = rows if len(rows) <= ROWS_SHOWN else [*rows[: ROWS_SHOWN - 1], rows[-1]]
        screen.print(table(f"Job {name}", columns(view), shown))
        if len(rows) > len(shown):
            screen.print(f"{len(rows) - len(shown)} more clients are in the report.")
    for sentence in sentences:
        screen.print(sentence)
    if report is not None:
        screen.print(f"Report: {report}")
    screen.print(f"Ledger: {ledger.name}, job {name}")


def _require_distinct_keys(folder: Path | None, job: DataJob) -> None:
    """Raise InputError unless all of the job's clients with a public key in the folder have different ones."""
    from truthfl.ledger.signing import read_public_line

    if folder is None:
        return
    if not folder.is_dir():
        raise InputError(f"participants is {str(folder)!r}, which is no folder; name the one with the .pub files.")
    paths = [folder / f"{name}.pub" for name in job.clients.name if (folder / f"{name}.pub").is_file()]
    owner: dict[str, Path] = {}
    for path in paths:
        other = owner.setdefault(read_public_line(path), path)
        if other is not path:
            raise InputError(f"{other} and {path} are the same key; each participant has a key of their own.")
