"""`truthfl run` and `truthfl share`: a whole job in one process, and its simulated clients' data as files."""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from truthfl import __version__
from truthfl.cli.output import JobFile, console, print_json, progress_bar, table
from truthfl.errors import INTERRUPTED, InputError
from truthfl.federation.operator.approval import PlanSummary
from truthfl.federation.simulated.in_process import run_job
from truthfl.federation.simulated.participants import in_labeling_order
from truthfl.federation.simulated.report import (
    client_rows,
    results_document,
    summary_sentences,
    table_columns,
    write_run_report,
)
from truthfl.files import require_writable, write_file
from truthfl.job import DataJob, read_job
from truthfl.learning.data.class_sets import joined
from truthfl.learning.data.datasets import npz_bytes
from truthfl.learning.people.labels import sets_given
from truthfl.learning.people.profile import Profile
from truthfl.learning.training.compute import kernel
from truthfl.ledger.sql.database import shown_address, shown_arguments
from truthfl.reporting.report import how_made

ROWS_SHOWN = 40


def run(
    job_file: JobFile = None,
    seed: Annotated[int, typer.Option(help="Seed of labels, batches and the test draw.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the ledger, results.json and report.html.")] = Path(
        "truthfl-run"
    ),
    ledger: Annotated[str | None, typer.Option(help="File or postgresql:// address; ledger.db in the folder.")] = None,
    simulation: Annotated[
        bool, typer.Option("--simulation", help="Use Flower's simulation, if it is installed, instead of one process.")
    ] = False,
    contract: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Another contract than the job's: lceme, …, or FILE.py:Class."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Run a complete job once more, as another job in the ledger.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print results.json.")] = False,
) -> None:
    """Run a job in one process: enrol, plan, offer, label, audition, train, test, pay, report.

    It uses the protocol of a real federation with simulated clients; the ledger has all promises and payments. An
    interrupted job goes on where it was; for a complete job, the results are shown again.

    Without a job: ten clients with real MNIST digits, four of them dishonest.

    Example: truthfl run hospital.toml --out results
    """
    if seed < 0:
        raise InputError(f"seed is {seed}; it must be at least 0.")
    job = read_job(job_file)
    if not isinstance(job, DataJob):
        raise InputError(f"{job_file} has no [data]; a job without data can be planned (truthfl plan), but not run.")
    if contract is not None:
        job = job.with_contract(contract)
    require_writable(out)
    started = time.monotonic()
    try:
        with progress_bar() as progress:
            outcome = run_job(
                job,
                out,
                seed=seed,
                ledger=ledger,
                progress=progress or (lambda *_: None),
                in_flower=simulation,
                again=again,
                show_plan=_warn_of_pay,
            )
    except KeyboardInterrupt:
        print(f"truthfl: interrupted; the same command goes on where it was ({out}).", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    compiled = kernel()
    engine = "NumPy" if compiled is None else f"compiled kernel, {compiled.instruction_set}"
    seconds = time.monotonic() - started
    command = shlex.join(["truthfl", *shown_arguments(sys.argv[1:])])
    provenance = {
        "command": command,
        "seed": seed,
        "truthfl": __version__,
        "engine": engine,
        "seconds": round(seconds, 2),
    }
    provenance_section = how_made(version=__version__, command=command, seeds=str(seed), engine=engine, seconds=seconds)
    report = write_run_report(job, outcome, out, provenance, provenance_section)
    if json:
        print_json(results_document(job, outcome, provenance))
        return
    screen = console()
    terms = outcome.agreement.terms
    title = f"{len(job.clients)} clients, {terms.rounds} rounds, step size {terms.step_size:.3g}"
    screen.print(table(title, table_columns(outcome), client_rows(outcome, ROWS_SHOWN), text=(0, 1)))
    if len(job.clients) > ROWS_SHOWN:
        hidden = f"{len(job.clients) - ROWS_SHOWN:,} of {len(job.clients):,} clients are not in this table"
        screen.print(f"{hidden}; {report} and results.json beside it have all.")
    for sentence in summary_sentences(job, outcome):
        screen.print(sentence)
    screen.print(f"Report: {report}")
    screen.print(f"Ledger: {shown_address(ledger or out / 'ledger.db')}, job {outcome.view.name}")


def _warn_of_pay(plan: PlanSummary) -> None:
    """If there is a warning about pay, say before offers go out what the work is worth, costs and pays, on stderr."""
    economics = plan.economics
    if economics.warnings:
        for sentence in (economics.sentence, *economics.warnings):
            print(f"truthfl: {sentence}", file=sys.stderr)


def share(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="A job on data.")],
    out: Annotated[
        Path, typer.Option(help="Folder for one file per client: NAME.npz of pictures, NAME.csv of others.")
    ] = Path("truthfl-shares"),
    seed: Annotated[int, typer.Option(help="Seed of the labels that clients with a behaviour draw.")] = 0,
    labels: Annotated[
        bool, typer.Option(help="With labels, as each client's behaviour makes them, or without.")
    ] = True,
) -> None:
    """Write each client's share of a job's data to a separate file.

    Samples are in the order in which they are asked for. Use this to try a federation: real participants bring their
    own data.

    Example: truthfl share hospital.toml --out shares
    """
    job = read_job(job_file)
    if not isinstance(job, DataJob):
        raise InputError(f"{job_file} has no [data]; there is nothing to share.")
    require_writable(out)
    federation = job.simulated_federation()
    federated = in_labeling_order(job, federation.federated)
    profile = Profile(job.clients.behaviour, 1)
    all_labels = profile.labels(federated, seed)
    sets = sets_given(federated, all_labels, profile.labeling_effort(federated.partition.sizes), seed)
    classes = federated.data.classes
    for client, name in enumerate(job.clients.name):
        if "/" in name or name in (".", ".."):
            raise InputError(f"{name!r} cannot be the name of a file; give the client another.")
        rows, own = federated.partition.rows_of(client), federated.samples_of(client)
        hers = None if sets is None else sets.take(np.arange(own.start, own.stop))
        if federation.clients_read is None or job.task.is_pictures:
            path = out / f"{name}.npz"
            her_labels = all_labels[own] if hers is None else hers.matrix(len(classes))
            arrays = {"images": federated.data.features[rows]} | ({"labels": her_labels} if labels else {})
            write_file(path, npz_bytes(arrays, compressed=True))
        else:
            path = out / f"{name}.csv"
            lists = [[label] for label in all_labels[own]] if hers is None else hers.lists()
            named = tuple(joined(classes[label] for label in one) for one in lists) if labels else None
            federation.task.write(path, replace(federation.clients_read.take(rows), labels=named))
        print(path)
