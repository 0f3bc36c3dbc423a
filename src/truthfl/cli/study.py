"""`truthfl study`: questions beyond one job that are answered by many trainings."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl import __version__
from truthfl.cli.cluster import On, workers_on
from truthfl.cli.output import console, print_json, table
from truthfl.cli.progress import exit_on_failure, progress_bar
from truthfl.errors import InputError

if TYPE_CHECKING:
    from truthfl.reporting.report import Section
    from truthfl.studies.size.size_study import SizeStudy

study = typer.Typer(help="Questions beyond one job, answered by many trainings.", no_args_is_help=True)


@study.callback()
def _group() -> None:
    """Questions beyond one job, answered by many trainings."""


@study.command()
def size(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer labels, clients and draws: some 10 seconds, and little is resolved.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Folder with MNIST's four files; 5,000 digits come along.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws and the runs.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("truthfl-sizes"),
    workers: Annotated[int | None, typer.Option(help="Processes; as many as there are cores unless given.")] = None,
    on: On = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """How do incentives scale? The same labels divided among 3 to 3,000 clients.

    What one client's work is worth, what lying gains under LCEME and under the audition, pay over cost and risk, with
    the power laws that fit. report.html in the folder; call again to continue after an interruption.

    Example: truthfl study size --quick
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1.")
    if seed < 0:
        raise InputError(f"seed is {seed}; it must be 0 or more.")
    if data is not None and not data.is_dir():
        raise InputError(f"data is {str(data)!r}, which is no folder; name the one with the four files of MNIST.")
    from truthfl.files import require_writable
    from truthfl.studies.size.size_design import BUILT_IN, size_design
    from truthfl.studies.size.size_report import write_size_study
    from truthfl.studies.size.size_study import study_sizes

    design = size_design(quick=quick, source=BUILT_IN if data is None else str(data.resolve()), seed=seed)
    require_writable(out)
    started = time.monotonic()
    with exit_on_failure(out):
        with workers_on(on, workers) as used, progress_bar() as progress:
            found = study_sizes(design, out, workers=used, progress=progress or (lambda *_: None))
        report = write_size_study(found, out, _provenance(found, time.monotonic() - started))
    if json:
        print_json({"sizes": found.sizes, "laws": found.laws, "tasks_done": found.tasks_done, "report": str(report)})
    else:
        _print(found, report)


def _provenance(found: SizeStudy, seconds: float) -> Section:
    from truthfl.learning.compiled import kernel
    from truthfl.reporting.report import how_made

    compiled = kernel()
    return how_made(
        version=__version__,
        command=shlex.join(["truthfl", *sys.argv[1:]]),
        seeds=f"{found.design.seed}; all runs of a draw share theirs",
        engine="NumPy" if compiled is None else f"compiled kernel, {compiled.instruction_set}",
        seconds=seconds,
        more=f"{found.tasks_done} tasks were done now; others had been kept from earlier calls.",
    )


def _print(found: SizeStudy, report: Path) -> None:
    from truthfl.studies.size.size_report import (
        RULE_COLUMNS,
        WORTH_COLUMNS,
        absence_sentences,
        law_sentences,
        rule_rows,
        scope_sentence,
        worth_rows,
    )

    screen = console()
    screen.print(table("What one client's work is worth, in cents", WORTH_COLUMNS, worth_rows(found), text=()))
    for name, title in (("lceme", "LCEME"), ("audition", "The audition")):
        rows = rule_rows(found, name)
        screen.print(table(f"{title}: pay, risk, and the best lie", RULE_COLUMNS, rows, text=(7,)))
    for sentence in (*law_sentences(found), *absence_sentences(found), scope_sentence(found)):
        screen.print(sentence)
    screen.print(f"Tasks done now: {found.tasks_done}. Report: {report}")
