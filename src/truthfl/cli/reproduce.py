"""`truthfl reproduce`, `errata` and `study`: the paper's figures, claims and errors, and questions beyond one job."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from truthfl import __version__
from truthfl.cli.output import console, exit_on_failure, print_json, progress_bar, table
from truthfl.cli.verify import On, workers_on
from truthfl.errors import InputError
from truthfl.files import require_writable
from truthfl.learning.training.compute import kernel
from truthfl.reporting.report import Section, how_made
from truthfl.studies.cells import SEEDS_PER_TASK
from truthfl.studies.reproduce import errata as paper_errata
from truthfl.studies.reproduce.claims import HOLDS
from truthfl.studies.reproduce.paper import full_paper, quick_paper
from truthfl.studies.reproduce.reproduction import Reproduction, chosen_studies, write_reproduction
from truthfl.studies.reproduce.reproduction import reproduce as run_studies
from truthfl.studies.size.design import BUILT_IN, size_design
from truthfl.studies.size.report import (
    RULE_COLUMNS,
    WORTH_COLUMNS,
    absence_sentences,
    law_sentences,
    rule_rows,
    scope_sentence,
    worth_rows,
    write_size_study,
)
from truthfl.studies.size.study import SizeStudy, study_sizes
from truthfl.studies.work import Store

FULL_SEEDS, QUICK_SEEDS = 20, 3


def reproduce(
    figures: Annotated[
        list[str] | None, typer.Argument(help="2 to 7, or text for the claims that have no figure; all unless given.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds, rounds and cells: under a minute.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Trainings per point: 20, or 3 with --quick.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with MNIST's four files; or else built-in digits.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("truthfl-reproduction"),
    workers: Annotated[int | None, typer.Option(help="Processes; as many as there are cores unless given.")] = None,
    on: On = None,
    json: Annotated[bool, typer.Option("--json", help="Print the claims as JSON.")] = False,
) -> None:
    """Reproduce the paper's figures and claims on real MNIST: a report, pictures, tables.

    Finished work is kept in the folder, and a call after an interruption goes on from there.

    Example: truthfl reproduce 6 7 --seeds 10
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1.")
    if data is not None and not data.is_dir():
        raise InputError(f"data is {str(data)!r}, which is no folder; name the one with the four files of MNIST.")

    studies = chosen_studies(figures or [])
    source = "mnist" if data is None else str(data.resolve())
    seed_count = seeds if seeds is not None else QUICK_SEEDS if quick else FULL_SEEDS
    paper = (quick_paper if quick else full_paper)(source, seed_count)
    require_writable(out)
    started = time.monotonic()
    with exit_on_failure(out):
        with workers_on(on, workers) as used, progress_bar() as progress:
            store = Store(out / "tasks")
            reproduction = run_studies(paper, studies, store, workers=used, progress=progress)
        report = write_reproduction(reproduction, out, _provenance(reproduction, time.monotonic() - started))
    if json:
        print_json({"claims": reproduction.claims, "tasks_done": reproduction.tasks_done, "report": str(report)})
    else:
        _print(reproduction, report)


def _provenance(reproduction: Reproduction, seconds: float) -> Section:
    compiled = kernel()
    paper, done = reproduction.paper, reproduction.tasks_done
    seeds, pilot = paper.seed_list, paper.pilot.most_seeds
    model, data = paper.federation.model, paper.federation.data
    return how_made(
        version=__version__,
        command=shlex.join(["truthfl", *sys.argv[1:]]),
        seeds=f"{seeds[0]} to {seeds[-1]}; on pilot data 0 to {pilot - 1}",
        engine="NumPy" if compiled is None else f"compiled kernel, {compiled.instruction_set}",
        seconds=seconds,
        more=f"{done} tasks were done now; others, of up to {SEEDS_PER_TASK} trainings each, had been kept "
        f"from earlier calls. Data: {data.source}; network with {model.filters} filters, penalty {model.penalty:g}; "
        f"{paper.federation.sizes[0]} samples for each of {paper.clients} clients, "
        f"{data.pilot_samples} pilot and {data.test_samples} test samples.",
    )


def _print(reproduction: Reproduction, report: Path) -> None:
    out = console()
    rows = [[claim.figure, claim.claimed, claim.obtained, claim.verdict] for claim in reproduction.claims]
    columns = ["figure", "claimed", "obtained [95% interval]", "verdict"]
    out.print(table("The paper's claims, made again", columns, rows, text=(0, 1, 2, 3)))
    reasons = dict.fromkeys((claim.figure, claim.reason) for claim in reproduction.claims if claim.verdict != HOLDS)
    for figure, reason in reasons:
        if reason:
            out.print(f"{figure}: {reason}")
    out.print(f"Tasks done now: {reproduction.tasks_done}. Report: {report}")


def errata(json: Annotated[bool, typer.Option("--json", help="One object per error.")] = False) -> None:
    """The paper's errors: what it prints, what is right, and what goes wrong otherwise.

    Both values are computed now.

    Example: truthfl errata
    """
    errors = paper_errata.errata()
    if json:
        print_json(errors)
        return
    rows = [[str(e.number), e.where, e.quantity, f"{e.printed:.4g}", f"{e.correct:.4g}", e.consequence] for e in errors]
    columns = ["#", "where", "what", "printed", "correct", "what goes wrong"]
    console().print(table("The paper's errors", columns, rows, text=(0, 1, 2, 5)))


study = typer.Typer(help="Questions beyond one job, answered by many trainings.", no_args_is_help=True)


@study.callback()
def _group() -> None:
    """Questions beyond one job, answered by many trainings."""


@study.command()
def size(
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer labels, clients and draws: some 10 seconds, and little is resolved.")
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Folder with MNIST's four files; or else built-in digits.")] = None,
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

    design = size_design(quick=quick, source=BUILT_IN if data is None else str(data.resolve()), seed=seed)
    require_writable(out)
    started = time.monotonic()
    with exit_on_failure(out):
        with workers_on(on, workers) as used, progress_bar() as progress:
            found = study_sizes(design, out, workers=used, progress=progress or (lambda *_: None))
        report = write_size_study(found, out, _study_provenance(found, time.monotonic() - started))
    if json:
        print_json({"sizes": found.sizes, "laws": found.laws, "tasks_done": found.tasks_done, "report": str(report)})
    else:
        _print_study(found, report)


def _study_provenance(found: SizeStudy, seconds: float) -> Section:
    compiled = kernel()
    return how_made(
        version=__version__,
        command=shlex.join(["truthfl", *sys.argv[1:]]),
        seeds=f"{found.design.seed}; all runs of a draw share theirs",
        engine="NumPy" if compiled is None else f"compiled kernel, {compiled.instruction_set}",
        seconds=seconds,
        more=f"{found.tasks_done} tasks were done now; others had been kept from earlier calls.",
    )


def _print_study(found: SizeStudy, report: Path) -> None:
    screen = console()
    screen.print(table("What one client's work is worth, in cents", WORTH_COLUMNS, worth_rows(found), text=()))
    for name, title in (("lceme", "LCEME"), ("audition", "The audition")):
        rows = rule_rows(found, name)
        screen.print(table(f"{title}: pay, risk, and the best lie", RULE_COLUMNS, rows, text=(7,)))
    for sentence in (*law_sentences(found), *absence_sentences(found), scope_sentence(found)):
        screen.print(sentence)
    screen.print(f"Tasks done now: {found.tasks_done}. Report: {report}")
