"""`truthfl reproduce`: reproduce the paper's figures and claims."""

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
    from truthfl.studies.reproduce.reproduction import Reproduction

FULL_SEEDS, QUICK_SEEDS = 20, 3


def reproduce(
    figures: Annotated[
        list[str] | None, typer.Argument(help="2 to 7, or text for the claims that have no figure; all unless given.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds, rounds and cells: under a minute.")] = False,
    seeds: Annotated[int | None, typer.Option(help="Trainings per point: 20, or 3 with --quick.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder with MNIST's four files; 5,000 digits come along.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("truthfl-reproduction"),
    workers: Annotated[int | None, typer.Option(help="Processes; as many as there are cores unless given.")] = None,
    on: On = None,
    json: Annotated[bool, typer.Option("--json", help="Print the claims as JSON.")] = False,
) -> None:
    """The paper's figures and claims, made again on real MNIST: report.html, pictures, tables.

    What was done is kept in the folder, and a call after an interruption goes on from there.

    Example: truthfl reproduce 6 7 --seeds 10
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}; it must be at least 1.")
    if data is not None and not data.is_dir():
        raise InputError(f"data is {str(data)!r}, which is no folder; name the one with the four files of MNIST.")
    from truthfl.files import require_writable
    from truthfl.studies.reproduce.paper import full_paper, quick_paper
    from truthfl.studies.reproduce.publication import write_reproduction
    from truthfl.studies.reproduce.reproduction import chosen_studies
    from truthfl.studies.reproduce.reproduction import reproduce as run_studies
    from truthfl.studies.work import Store

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
    from truthfl.learning.compiled import kernel
    from truthfl.reporting.report import how_made
    from truthfl.studies.cells import SEEDS_PER_TASK

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
    from truthfl.studies.reproduce.claims import HOLDS

    out = console()
    rows = [[claim.figure, claim.claimed, claim.obtained, claim.verdict] for claim in reproduction.claims]
    columns = ["figure", "claimed", "obtained [95% interval]", "verdict"]
    out.print(table("The paper's claims, made again", columns, rows, text=(0, 1, 2, 3)))
    reasons = dict.fromkeys((claim.figure, claim.reason) for claim in reproduction.claims if claim.verdict != HOLDS)
    for figure, reason in reasons:
        if reason:
            out.print(f"{figure}: {reason}")
    out.print(f"Tasks done now: {reproduction.tasks_done}. Report: {report}")
