"""`truthfl run`: a whole job, from the plan to the pay. What it needs is loaded when it is called."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from truthfl import __version__
from truthfl.cli.output import JobFile, console, print_json, table
from truthfl.cli.progress import INTERRUPTED, progress
from truthfl.errors import InputError


def run(
    job_file: JobFile = None,
    seed: Annotated[int, typer.Option(help="Of labels, batches and the test draw.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for results.json and report.html.")] = Path("truthfl-run"),
    json: Annotated[bool, typer.Option("--json", help="Print results.json.")] = False,
) -> None:
    """Run a job in one process: plan, offer, label, train, test, pay, report.

    Without a job: ten clients with real MNIST digits, two of them dishonest.

    Example: truthfl run hospital.toml --out results
    """
    from truthfl.federation.account import COLUMNS, as_plain, client_rows, publish, sentences
    from truthfl.federation.embedded import LOOKS, run_job
    from truthfl.job import DataJob, read_job
    from truthfl.learning.compiled import kernel
    from truthfl.studies.publication import require_writable
    from truthfl.studies.report import how_made

    if seed < 0:
        raise InputError(f"seed is {seed}; it must be at least 0.")
    job = read_job(job_file)
    if not isinstance(job, DataJob):
        raise InputError(f"{job_file} has no [data]; a job without data can be planned (truthfl plan), but not run.")
    require_writable(out)
    started = time.monotonic()
    try:
        with progress() as watch:
            done = 0

            def step() -> None:
                nonlocal done
                done += 1
                if watch is not None:
                    watch("training", done, LOOKS)

            if watch is not None:
                watch("planning on pilot data", 0, 0)
            scene = job.scene()
            plan = job.plan(scene)
            outcome = run_job(job, scene, plan, seed=seed, progress=step)
    except KeyboardInterrupt:
        print("truthfl: interrupted; nothing was paid.", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    built = kernel()
    engine = "NumPy" if built is None else f"compiled kernel, {built.instruction_set}"
    seconds = time.monotonic() - started
    command = shlex.join(["truthfl", *sys.argv[1:]])
    made = {"command": command, "seed": seed, "truthfl": __version__, "engine": engine, "seconds": round(seconds, 2)}
    last = how_made(version=__version__, command=command, seeds=str(seed), engine=engine, seconds=seconds)
    report = publish(job, plan, outcome, out, made, last)
    if json:
        print_json(as_plain(job, plan, outcome, made))
        return
    screen = console()
    title = f"{len(job.clients)} clients, {plan.training.rounds} rounds, step size {plan.training.step_size:.3g}"
    screen.print(table(title, COLUMNS, client_rows(plan, outcome), text=(0, 1)))
    for sentence in sentences(job, plan, outcome):
        screen.print(sentence)
    screen.print(f"Report: {report}")
