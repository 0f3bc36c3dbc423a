"""`truthfl serve`: run a job with participants on other machines, on Flower.

Imports `progress` and, when called, `federation`, `job`, the ledger and `studies`.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.exit_codes import FAILED, INTERRUPTED, SERVICE_FAILED
from truthfl.errors import InputError, ServiceError
from truthfl.files import make_private_folder
from truthfl.texts import plain, plain_lines

if TYPE_CHECKING:
    from truthfl.federation.deployed.flower_servers import SuperLink
    from truthfl.federation.deployed.superlink_client import Connection
    from truthfl.federation.protocol.approval import PlanSummary
    from truthfl.job import DataJob
    from truthfl.ledger.book import Ledger
    from truthfl.ledger.job_terms import JobTerms

POLL_SECONDS = 0.5
LONGEST_LINE = 1000


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
        Path | None, typer.Option(help="Folder with the participants' public keys, NAME.pub each.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen at, or of a SuperLink that runs.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the SuperLink.")] = 8000,
    running: Annotated[bool, typer.Option("--running", help="A SuperLink runs there already; join it.")] = False,
    ledger: Annotated[str | None, typer.Option(help="File or postgresql:// address; ledger.db in the folder.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="To repeat a job exactly; whoever knows it knows the test draw.")
    ] = None,
    contract: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Another contract than the job's, for example: --contract lceme."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run a complete job once more: another job, with pay of its own.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Send the offers of the plan without asking; it is shown all the same.")
    ] = False,
) -> None:
    """Start a SuperLink, or join one, and run a job on it: enrol, plan, offer, label, audition, train, test, pay.

    When the plan is made, you see who would be asked what for how much, and say whether these offers are sent. A job
    that was interrupted goes on where it was: give the same command again.

    Example: truthfl serve hospital.toml --keys keys --participants people --host fl.example.org
    """
    from truthfl.federation.deployed.app_folder import write_app_folder
    from truthfl.federation.deployed.apps import RUN_CONFIG
    from truthfl.federation.deployed.superlink_client import register, submit
    from truthfl.federation.protocol.operator_folder import fixed_draws, keep_ledger_address, kept_draws, take_failure
    from truthfl.federation.protocol.plan_files import clear_plan
    from truthfl.federation.protocol.server import is_complete, job_name
    from truthfl.job import DataJob, read_job
    from truthfl.ledger.book import open_ledger
    from truthfl.studies.reproduce.publication import require_writable

    job = read_job(job_file)
    if not isinstance(job, DataJob):
        raise InputError(f"{job_file} has no [data]; a job without data can be planned (truthfl plan), but not run.")
    if contract is not None:
        job = job.with_contract(contract)
    if seed is not None and seed < 0:
        raise InputError(f"seed is {seed}; it must be at least 0.")
    if not 0 < port < 65536:
        raise InputError(f"port is {port}; it must be from 1 to 65535.")
    if keys is not None and participants is None:
        raise InputError("--participants is not given; with keys, only those whose NAME.pub is in it are let in.")
    make_private_folder(out)
    require_writable(out)
    ledger_address = ledger or str((out / "ledger.db").resolve())
    public_keys = _public_keys(participants, job)
    if not yes and not sys.stdin.isatty():
        raise InputError("there is no terminal to ask you at; say --yes to send the plan's offers without asking.")
    operator_key = (out if keys is None else keys) / "operator"
    with open_ledger(ledger_address) as opened_ledger:
        name = job_name(opened_ledger, job, (kept_draws(out) if seed is None else fixed_draws(seed)).seed)
        complete = is_complete(opened_ledger, name)
        if complete and not again:
            raise InputError(
                f"job {name} is complete and its pay is in the ledger; --again runs and pays it once more."
            )
        if complete or not opened_ledger.entries(name):
            draws = kept_draws(out, fresh=True) if seed is None else fixed_draws(seed)
            name = job_name(opened_ledger, job, draws.seed, again=again)
        take_failure(out)  # of an earlier attempt
        keep_ledger_address(out, ledger_address)
        clear_plan(out)
        settings = RUN_CONFIG | {
            "job-file": str(job_file.resolve()),
            "job-name": name,
            "folder": str(out.resolve()),
            "operator-key": str(operator_key.resolve()),
            "seed": -1 if seed is None else seed,
            "authenticated": keys is not None,
            "contract": contract or "",
            "approved": yes,
        }
        link, connection = _superlink(out, host, port, keys, running)
        try:
            for path in public_keys:
                register(connection, path, path.stem)
            print(f"truthfl: job {name} at {connection.address}, waiting for {len(job.clients)} clients", flush=True)
            run = submit(connection, write_app_folder(out / "app", run_config=RUN_CONFIG), settings)
            _print_entries_until_over(opened_ledger, name, connection, run, out, ask=not yes)
        except (KeyboardInterrupt, typer.Abort):
            print("truthfl: interrupted; the same command goes on where it was.", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            if link is not None:
                link.stop()
    print(f"Ledger: {opened_ledger.name}, job {name}")


def _superlink(
    out: Path, host: str, port: int, keys: Path | None, running: bool
) -> tuple[SuperLink | None, Connection]:
    """Start a SuperLink, or connect to one that runs; return it, None in the latter case, and the connection."""
    from truthfl.federation.deployed.flower_servers import FLOWER_HOME, start_superlink
    from truthfl.federation.deployed.superlink_client import Connection, is_reachable

    if not running:
        link = start_superlink(out, host, port, certificates=keys, authentication=keys is not None)
        return link, link.connection
    root = None if keys is None else keys / "ca.crt"
    connection = Connection(host, port, root, out / FLOWER_HOME)
    if not is_reachable(connection):
        raise ServiceError(f"no SuperLink answers at {connection.address}; leave --running out to start one.")
    return None, connection


def _public_keys(folder: Path | None, job: DataJob) -> list[Path]:
    """The public key files of those of the job's clients that have one in the folder; other files are ignored."""
    from truthfl.ledger.signing import read_public_line

    if folder is None:
        return []
    if not folder.is_dir():
        raise InputError(f"participants is {str(folder)!r}, which is no folder; name the one with the .pub files.")
    paths = [folder / f"{name}.pub" for name in job.clients.name if (folder / f"{name}.pub").is_file()]
    if not paths:
        raise InputError(f"{folder} has no NAME.pub of {', '.join(job.clients.name)}; participants send you theirs.")
    for path in paths:
        read_public_line(path)
    return paths


def _print_entries_until_over(
    ledger: Ledger, name: str, connection: Connection, run: int, out: Path, *, ask: bool
) -> None:
    """Print new ledger entries of the job until the run is over; exit with an error code unless it completed.

    The code is that of a failed service if a process crashed, or the network or the disk failed.

    ask  whether the server waits until its plan is approved
    """
    from truthfl.federation.deployed.superlink_client import run_status
    from truthfl.federation.protocol.narration import describe_entry
    from truthfl.federation.protocol.operator_folder import take_failure
    from truthfl.ledger.terms import offer_from

    terms: JobTerms | None = None
    last_printed, over, last_plan = 0, False, None
    while True:
        last_plan = _show_new_plan(out, last_plan, ask=ask)
        for entry in ledger.entries(name, after=last_printed):
            last_printed = entry.sequence
            terms = offer_from(entry.document).job if entry.kind == "offer" else terms
            line = describe_entry(entry, terms)
            if line is not None:
                print(plain(line, LONGEST_LINE), flush=True)
        if over:
            break
        status = run_status(connection, run)
        over = status.is_over
        if not over:
            time.sleep(POLL_SECONDS)
    if status.state != "completed":
        error = take_failure(out) or ServiceError(status.details or status.state)
        print(f"truthfl: the job did not end well: {plain_lines(error)}", file=sys.stderr)
        raise typer.Exit(SERVICE_FAILED if isinstance(error, ServiceError) else FAILED)


def _show_new_plan(out: Path, last: PlanSummary | None, *, ask: bool) -> PlanSummary | None:
    """Print the server's plan unless it is the last one that was printed; return it."""
    from truthfl.federation.protocol.plan_files import answer_plan, shown_plan

    plan = shown_plan(out)
    if plan is None or plan == last:
        return last
    from truthfl.cli.plan_approval import print_plan_summary

    print_plan_summary(plan)
    if ask:
        answer_plan(out, plan, approved=typer.confirm("Send these offers?"))
    return plan
