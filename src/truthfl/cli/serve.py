"""`truthfl serve`: run a job with other people's machines, on Flower. What it needs is loaded when it is called."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.progress import FAILED, INTERRUPTED
from truthfl.errors import InputError, ServiceError

if TYPE_CHECKING:
    from truthfl.federation.deployed.superlink_client import Connection
    from truthfl.job import DataJob
    from truthfl.ledger.book import Ledger

LOOK_EVERY = 0.5  # seconds


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
) -> None:
    """Start a SuperLink, or join one, and run a job on it: enrol, plan, offer, label, train, test, pay.

    A job that was interrupted goes on where it was: give the same command again.

    Example: truthfl serve hospital.toml --keys keys --participants people --host fl.example.org
    """
    from truthfl.federation.deployed.app_folder import app_folder
    from truthfl.federation.deployed.apps import RUN_CONFIG
    from truthfl.federation.deployed.superlink_client import register, submit
    from truthfl.federation.protocol.operator_folder import fixed_draws, kept_draws, noted_failure
    from truthfl.federation.protocol.server import job_name
    from truthfl.job import DataJob, read_job
    from truthfl.ledger.book import open_ledger
    from truthfl.studies.reproduce.publication import require_writable

    job = read_job(job_file)
    if not isinstance(job, DataJob):
        raise InputError(f"{job_file} has no [data]; a job without data can be planned (truthfl plan), but not run.")
    if seed is not None and seed < 0:
        raise InputError(f"seed is {seed}; it must be at least 0.")
    if not 0 < port < 65536:
        raise InputError(f"port is {port}; it must be from 1 to 65535.")
    if keys is not None and participants is None:
        raise InputError("--participants is not given; with keys, only those whose NAME.pub is in it are let in.")
    require_writable(out)
    where = ledger or str((out / "ledger.db").resolve())
    public = _public_keys(participants, job)
    operator_key = (out if keys is None else keys) / "operator"
    with open_ledger(where) as book:
        name = job_name(book, job, (kept_draws(out) if seed is None else fixed_draws(seed)).seed)
        if seed is None and not book.entries(name):
            name = job_name(book, job, kept_draws(out, fresh=True).seed)
        noted_failure(out)
        settings = RUN_CONFIG | {
            "job-file": str(job_file.resolve()),
            "job-name": name,
            "folder": str(out.resolve()),
            "ledger": where,
            "operator-key": str(operator_key.resolve()),
            "seed": -1 if seed is None else seed,
            "authenticated": keys is not None,
        }
        link, connection = _superlink(out, host, port, keys, running)
        try:
            for path in public:
                register(connection, path, path.stem)
            print(f"truthfl: job {name} at {connection.address}, waiting for {len(job.clients)} clients", flush=True)
            run = submit(connection, app_folder(out / "app", run_config=RUN_CONFIG), settings)
            _watch(book, name, connection, run, out)
        except KeyboardInterrupt:
            print("truthfl: interrupted; the same command goes on where it was.", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None
        finally:
            if link is not None:
                link.stop()
    print(f"Ledger: {where}, job {name}")


def _superlink(out: Path, host: str, port: int, keys: Path | None, running: bool):  # type: ignore[no-untyped-def]
    from truthfl.federation.deployed.flower_servers import FLOWER_HOME, start_superlink
    from truthfl.federation.deployed.superlink_client import Connection, answers

    if not running:
        link = start_superlink(out, host, port, certificates=keys, authentication=keys is not None)
        return link, link.connection
    root = None if keys is None else keys / "ca.crt"
    connection = Connection(host, port, root, out / FLOWER_HOME)
    if not answers(connection):
        raise ServiceError(f"no SuperLink answers at {connection.address}; leave --running out to start one.")
    return None, connection


def _public_keys(folder: Path | None, job: DataJob) -> list[Path]:
    """A file for each client of the job that has one; keys of people the job does not know are left alone."""
    from truthfl.ledger.signing import read_public_line

    if folder is None:
        return []
    if not folder.is_dir():
        raise InputError(f"participants is {str(folder)!r}, which is no folder; name the one with the .pub files.")
    found = [folder / f"{name}.pub" for name in job.clients.name if (folder / f"{name}.pub").is_file()]
    if not found:
        raise InputError(f"{folder} has no NAME.pub of {', '.join(job.clients.name)}; participants send you theirs.")
    for path in found:
        read_public_line(path)
    return found


def _watch(book: Ledger, name: str, connection: Connection, run: int, out: Path) -> None:
    """Tell what happens until the run is over."""
    from truthfl.federation.deployed.superlink_client import run_status
    from truthfl.federation.protocol.narration import in_words
    from truthfl.federation.protocol.operator_folder import noted_failure

    seen, over = 0, False
    while True:
        for entry in book.entries(name, after=seen):
            seen = entry.sequence
            line = in_words(entry)
            if line is not None:
                print(line, flush=True)
        if over:
            break
        status = run_status(connection, run)
        over = status.over
        if not over:
            time.sleep(LOOK_EVERY)
    if status.state != "completed":
        why = noted_failure(out) or status.details or status.state
        print(f"truthfl: the job did not end well: {why}", file=sys.stderr)
        raise typer.Exit(FAILED)
