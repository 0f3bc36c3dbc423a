"""`truthfl verify`: the best lie of any client, in real training for a job on data, on the loss model for others.

Imports `output`, `progress` and, when called, `job`, `studies`, `reporting` and `learning.compiled`.
"""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl import __version__
from truthfl.cli.output import JobFile, console, print_json, table
from truthfl.cli.progress import exit_on_failure, progress_bar
from truthfl.errors import InputError

if TYPE_CHECKING:
    from truthfl.job import ConstantsJob, DataJob
    from truthfl.reporting.report import Section
    from truthfl.studies.verify.verification import VerificationDesign


def verify(
    job_file: JobFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="Two clients, fewer lies and runs: about a minute.")] = False,
    data: Annotated[Path | None, typer.Option(help="Folder with MNIST's four files, in place of the job's.")] = None,
    seed: Annotated[int, typer.Option(help="The first run's seed; the others follow it.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("truthfl-verification"),
    workers: Annotated[int | None, typer.Option(help="Processes; as many as there are cores unless given.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One object per payment rule.")] = False,
) -> None:
    """Does lying pay? The best lie of any client under each payment rule, the others being honest.

    For a job on data: in real training, with confidence intervals, more runs where the answer is open; report.html in
    the folder. For a job that states its constants: on its loss model, by formula and search.

    Example: truthfl verify hospital.toml --quick
    """
    from truthfl.job import ConstantsJob, read_job

    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1.")
    if seed < 0:
        raise InputError(f"seed is {seed}; it must be 0 or more.")
    job = read_job(job_file)
    if isinstance(job, ConstantsJob):
        _verify_on_loss_model(job, json)
        return
    if data is not None:
        if not data.is_dir():
            raise InputError(f"data is {str(data)!r}, which is no folder; name the one with the four files of MNIST.")
        mnist = replace(job.data, source=str(data.resolve()), pilot_samples=10_000, test_samples=None)
        job = replace(job, data=mnist)
    _verify_by_training(job, quick, seed, out, workers, json)


def _verify_by_training(job: DataJob, quick: bool, seed: int, out: Path, workers: int | None, json: bool) -> None:
    from truthfl.studies.reproduce.publication import require_writable
    from truthfl.studies.verify.job_verification import verify_job
    from truthfl.studies.verify.verification_report import COLUMNS, empty_report_sentence, rows, write_verification

    require_writable(out)
    started = time.monotonic()
    with exit_on_failure(out):
        with progress_bar() as progress:
            callback = progress or (lambda *_: None)
            verification = verify_job(job, out, quick=quick, seed=seed, workers=workers, progress=callback)
        provenance, scope = _provenance(seed, time.monotonic() - started), _scope_sentence(verification.design)
        report = write_verification(verification.results, verification.absent, scope, out, provenance)
    verdicts = verification.verdicts
    if json:
        print_json(verdicts)
        return
    screen = console()
    screen.print(table("Does lying pay, in real training?", COLUMNS, rows(verdicts), text=(0, 6, 7)))
    screen.print(scope)
    screen.print(f"{verdicts[0].rule}: {empty_report_sentence(verdicts[0])}")
    for rule, reason in verification.absent.items():
        screen.print(f"{rule} is not shown: {reason}")
    screen.print(f"Report: {report}")


def _scope_sentence(design: VerificationDesign) -> str:
    return (
        f"{len(design.lies)} lies of each of {len(design.clients)} clients, {design.looks[0]} pairs of runs "
        f"each, up to {design.looks[-1]} where it is open whether the gain exceeds {design.tolerance:.0%} of "
        "what honest work costs."
    )


def _provenance(seed: int, seconds: float) -> Section:
    from truthfl.learning.compiled import kernel
    from truthfl.reporting.report import how_made

    compiled = kernel()
    return how_made(
        version=__version__,
        command=shlex.join(["truthfl", *sys.argv[1:]]),
        seeds=f"{seed} and up, the same for every lie and rule",
        engine="NumPy" if compiled is None else f"compiled kernel, {compiled.instruction_set}",
        seconds=seconds,
    )


def _verify_on_loss_model(job: ConstantsJob, json: bool) -> None:
    from truthfl.studies.verify.on_loss_model import does_lying_pay

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
    columns = ["payment rule", "gain", "of her pay", "best for", "her lie", "shown by"]
    console().print(
        table("Does lying pay, on the loss model? The best lie of any client", columns, lines, text=(0, 3, 4, 5))
    )
