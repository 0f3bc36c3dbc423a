"""`truthfl serve`: run a job with participants on other machines.

Imports `narrator`, `plan_approval`, `serve_on_superlink` and, when called, `federation`, `job`, the ledger and
`studies`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.exit_codes import FAILED, INTERRUPTED, SERVICE_FAILED
from truthfl.errors import InputError, ServiceError, TruthflError
from truthfl.files import make_private_folder
from truthfl.texts import plain, plain_lines

if TYPE_CHECKING:
    from truthfl.federation.protocol.approval import PlanSummary
    from truthfl.federation.protocol.kept_jobs import KeptJob
    from truthfl.job import DataJob
    from truthfl.ledger.book import Ledger


MOST_REFUSALS = 100  # printed


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
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8000,
    running: Annotated[bool, typer.Option("--running", help="Run the job on a SuperLink that runs there.")] = False,
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
) -> None:
    """Listen for participants and run a job with them: enrol, plan, offer, label, audition, train, test, pay.

    When the plan is made, you see who would be asked what for how much, and say whether these offers are sent. A job
    that was interrupted goes on as it was begun: give the same command again. After its end the same command shows
    the result.

    Example: truthfl serve hospital.toml --keys keys --participants people --host fl.example.org
    """
    from truthfl.federation.protocol.kept_jobs import JobSource, choose_job
    from truthfl.federation.protocol.operator_folder import keep_ledger_address, lock_folder
    from truthfl.job import read_job_text
    from truthfl.ledger.book import open_ledger
    from truthfl.studies.reproduce.publication import require_writable

    if seed is not None and seed < 0:
        raise InputError(f"seed is {seed}; it must be at least 0.")
    if not 0 < port < 65536:
        raise InputError(f"port is {port}; it must be from 1 to 65535.")
    source = JobSource(read_job_text(job_file), job_file.parent, str(job_file), contract or "", seed)
    public_keys = _public_keys(participants, source.job())
    if not yes and not sys.stdin.isatty():
        raise InputError("there is no terminal to ask you at; say --yes to send the plan's offers without asking.")
    make_private_folder(out)
    require_writable(out)
    ledger_address = ledger or str((out / "ledger.db").resolve())
    with lock_folder(out), open_ledger(ledger_address) as opened:
        kept = choose_job(out, opened, source, new=new)
        _tell_differences(kept, job_file)
        if not kept.complete:
            keep_ledger_address(out, ledger_address)
            operator_key = (out if keys is None else keys) / "operator"
            try:
                if running:
                    from truthfl.cli.serve_on_superlink import connection_to, serve_on_superlink

                    connection = connection_to(host, port, keys, out)
                    serve_on_superlink(
                        kept, opened, ledger_address, out, operator_key, connection, public_keys, ask=not yes
                    )
                else:
                    _serve(kept, opened, out, operator_key, (host, port, keys), public_keys, ask=not yes)
            except (KeyboardInterrupt, typer.Abort):
                print("truthfl: interrupted; the same command goes on where it was.", file=sys.stderr)
                raise typer.Exit(INTERRUPTED) from None
            except TruthflError as error:
                print(f"truthfl: the job did not end well: {plain_lines(error)}", file=sys.stderr)
                raise typer.Exit(SERVICE_FAILED if isinstance(error, ServiceError) else FAILED) from None
    print(f"Ledger: {opened.name}, job {kept.name}")


def _tell_differences(kept: KeptJob, job_file: Path) -> None:
    """Say how the job is another one than its file describes today."""
    if kept.complete:
        print(f"truthfl: job {kept.name} is complete; --new begins another.", flush=True)
    elif not kept.is_new:
        print(f"truthfl: going on with job {kept.name} as it was begun.", flush=True)
        for difference in kept.differences:
            print(f"truthfl: {job_file} differs: {plain(difference)}.", flush=True)
        if kept.differences:
            print("truthfl: these changes have no effect; --new begins another job with them.", flush=True)


def _serve(
    kept: KeptJob,
    ledger: Ledger,
    out: Path,
    operator_key: Path,
    listen_at: tuple[str, int, Path | None],
    public_keys: list[Path],
    *,
    ask: bool,
) -> None:
    """Listen for nodes and conduct the job.

    listen_at  host, port, and the folder with the certificates
    """
    from truthfl.cli.narrator import Narrator
    from truthfl.federation.deployed.job_server import open_job_server
    from truthfl.federation.protocol.operator_folder import kept_key
    from truthfl.federation.protocol.server import Operator, conduct_job
    from truthfl.ledger.signing import read_public_line

    host, port, keys = listen_at
    key, draws = kept_key(operator_key), kept.draws
    known = {path.stem: read_public_line(path) for path in public_keys}
    with open_job_server(host, port, keys, known, note=_refusal_printer()) as server:
        clients = len(kept.job.clients)
        print(f"truthfl: job {kept.name} at {host}:{server.port}, waiting for {clients} clients", flush=True)
        approve = _approve if ask else _show_plan
        operator = Operator(ledger, out, key, draws.secret, draws.seed, keys is not None, approve)
        with Narrator(ledger, kept.name):
            conduct_job(server.grid, kept.job, kept.name, operator, lambda job, side: job.plan(side), lambda *_: None)


def _refusal_printer() -> Callable[[str, str], None]:
    """A function that prints who was not let in and why; the same only once."""
    from truthfl.cli.narrator import print_at

    printed = set[tuple[str, str]]()

    def show(address: str, reason: str) -> None:
        if (address, reason) not in printed and len(printed) < MOST_REFUSALS:
            printed.add((address, reason))
            print_at(datetime.now(UTC), f"{address} was not let in: {reason}")

    return show


def _show_plan(plan: PlanSummary) -> bool:
    from truthfl.cli.plan_approval import print_plan_summary

    print_plan_summary(plan)
    return True


def _approve(plan: PlanSummary) -> bool:
    _show_plan(plan)
    return bool(typer.confirm("Send these offers?"))


def _public_keys(folder: Path | None, job: DataJob) -> list[Path]:
    """The public key files of those of the job's clients that have one in the folder; other files are ignored."""
    from truthfl.ledger.signing import read_public_line

    if folder is None:
        return []
    if not folder.is_dir():
        raise InputError(f"participants is {str(folder)!r}, which is no folder; name the one with the .pub files.")
    paths = [folder / f"{name}.pub" for name in job.clients.name if (folder / f"{name}.pub").is_file()]
    for path in paths:
        read_public_line(path)
    return paths
