"""`truthfl verify`: the best lie of any client; the option `--on`, which trains on a Ray cluster."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from truthfl import __version__
from truthfl.cli.output import JobFile, console, exit_on_failure, print_json, progress_bar, table
from truthfl.errors import InputError
from truthfl.files import require_writable
from truthfl.job import ConstantsJob, DataJob, read_job
from truthfl.learning.training.compute import kernel
from truthfl.reporting.report import Section, how_made
from truthfl.studies.cluster.workers import RayWorkers
from truthfl.studies.verify.job_verification import JobVerification, verify_job
from truthfl.studies.verify.on_loss_model import does_lying_pay
from truthfl.studies.verify.report import (
    CLIENT_COLUMNS,
    SHORT_COLUMNS,
    client_rows,
    coalition_sentence,
    short_rows,
    worth_sentence,
    write_verification,
)
from truthfl.studies.work import Workers

On = Annotated[
    str | None,
    typer.Option(
        metavar="ray[://HOST:PORT]",
        help="Have a Ray cluster train: ray for one on this machine, ray://HOST:PORT for one elsewhere.",
    ),
]


@contextmanager
def workers_on(on: str | None, workers: int | None = None) -> Iterator[int | Workers | None]:
    """The workers of a study: the named cluster, or else this many processes."""
    if on is None:
        yield workers
        return
    if workers is not None:
        raise InputError("--workers is a number of processes on this machine; with --on the cluster has its own.")

    with RayWorkers(on) as cluster:
        yield cluster
    if cluster.repeated:
        tasks = "1 task was" if cluster.repeated == 1 else f"{cluster.repeated:,} tasks were"
        print(f"truthfl: {tasks} computed again, because a process or node was lost.", file=sys.stderr)


def verify(
    job_file: JobFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer lies and runs, one plan: about a minute.")] = False,
    contract: Annotated[
        str | None, typer.Option(metavar="KIND", help="Another contract than the job's: lceme, …, or FILE.py:Class.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with MNIST's four files, in place of the job's.")] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            help="Training runs, about; 20,000 unless given (1,600 for a CNN on MNIST or a table), some 2,000 at least."
        ),
    ] = None,
    splits: Annotated[
        int | None, typer.Option(help="Splits on which the best lies are measured; 40 unless given, at least 20.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search, the splits and the runs.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("truthfl-verification"),
    workers: Annotated[int | None, typer.Option(help="Processes; as many as there are cores unless given.")] = None,
    on: On = None,
    json: Annotated[bool, typer.Option("--json", help="One object per payment rule.")] = False,
) -> None:
    """Does lying pay? The best lie under each payment rule, the other clients being honest.

    For a job on data, an adversary searches for the lie that gains most in real training; its gain is measured on
    splits and seeds that the search has not seen. The folder gets report.html; call again after an interruption. For a
    job that states its constants, the best lie on its loss model is found by formula and search.

    Example: truthfl verify hospital.toml --contract lceme --quick
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1.")
    if seed < 0:
        raise InputError(f"seed is {seed}; it must be 0 or more.")
    job = read_job(job_file)
    if contract is not None:
        job = job.with_contract(contract)
    if isinstance(job, ConstantsJob):
        for option, value in (("--data", data), ("--runs", runs), ("--splits", splits), ("--on", on)):
            if value is not None:
                raise InputError(f"{option} is for a job on data; this one states constants and is not trained.")
        _verify_on_loss_model(job, json)
        return
    if data is not None:
        if not data.is_dir():
            raise InputError(f"data is {str(data)!r}, which is no folder; name the one with the four files of MNIST.")
        mnist = replace(job.data, source=str(data.resolve()), pilot_samples=10_000, test_samples=None)
        job = replace(job, data=mnist)
    _verify_by_training(job, quick, runs, splits, seed, out, workers, on, json)


def _verify_by_training(
    job: DataJob,
    quick: bool,
    runs: int | None,
    splits: int | None,
    seed: int,
    out: Path,
    workers: int | None,
    on: str | None,
    json: bool,
) -> None:
    require_writable(out)
    started = time.monotonic()
    with exit_on_failure(out):
        with workers_on(on, workers) as used, progress_bar() as progress:
            callback = progress or (lambda *_: None)
            verification = verify_job(
                job, out, quick=quick, runs=runs, splits=splits, seed=seed, workers=used, progress=callback
            )
        scope = _scope_sentence(verification)
        report = write_verification(verification, scope, out, _provenance(seed, time.monotonic() - started))
    verdicts = verification.verdicts
    if json:
        print_json(verdicts)
        return
    screen = console()
    screen.print(
        table("Does lying pay, in real training?", SHORT_COLUMNS, short_rows(verdicts), text=(0, 8), lines=True)
    )
    own = verdicts[0]
    screen.print(table(f"Clients under {own.rule}", CLIENT_COLUMNS, client_rows(own), text=(0, 4)))
    for sentence in (worth_sentence(own), coalition_sentence(own), scope):
        if sentence:
            screen.print(sentence)
    for rule, reason in verification.absent.items():
        screen.print(f"{rule} is not shown: {reason}")
    screen.print(f"Report: {report}")


def _scope_sentence(verification: JobVerification) -> str:
    """A sentence about what was searched and measured."""
    measurements = [measurement for measurement, _ in verification.results]
    first = measurements[0]
    points, runs = sum(len(m.found.points) for m in measurements), sum(m.runs for m in measurements)
    draws = verification.draws
    plans = "the job's own plan" if draws == 1 else f"plans on {draws} draws of the data"
    liars, clients = len(set(first.honest.liar.tolist())), len(first.test.draws[0].clients)
    asked = "" if liars == clients else f"; {liars} of the {clients:,} clients lie in turn"
    return (
        f"{points:,} lies and {runs:,} training runs; searched on {len(first.design.searched)} splits, the best of "
        f"them measured on {len(first.design.measured)} others; {plans}{asked}."
    )


def _provenance(seed: int, seconds: float) -> Section:
    compiled = kernel()
    return how_made(
        version=__version__,
        command=shlex.join(["truthfl", *sys.argv[1:]]),
        seeds=f"{seed} and up, the same for every lie and rule",
        engine="NumPy" if compiled is None else f"compiled kernel, {compiled.instruction_set}",
        seconds=seconds,
    )


def _verify_on_loss_model(job: ConstantsJob, json: bool) -> None:
    model = job.loss_model()
    answers = does_lying_pay(job.clients, model, job.training, job.plan(model))
    if json:
        print_json(answers)
        return
    lines = [
        [
            answer.rule,
            "–" if answer.gain is None else f"{answer.gain:,.2f}",
            "–" if answer.regret is None else f"{answer.regret:.1%}",
            str(answer.worst_deviation["client"]) if answer.gain else "nobody",
            str(answer.worst_deviation["description"]) if answer.gain else "none",
            answer.evidence,
        ]
        for answer in answers
    ]
    columns = ["payment rule", "gain", "of the pay", "best for", "the lie", "shown by"]
    console().print(
        table("Does lying pay, on the loss model? The best lie of any client", columns, lines, text=(0, 3, 4, 5))
    )
