"""The command `truthfl plan`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from truthfl.cli.cluster import On, workers_on
from truthfl.cli.output import JobFile, print_json
from truthfl.cli.progress import exit_on_failure
from truthfl.errors import InputError


def plan(
    job_file: JobFile = None,
    contract: Annotated[
        str | None, typer.Option(help="Kind of contract, in place of the job's: audition, lceme, …")
    ] = None,
    on: On = None,
    out: Annotated[Path, typer.Option(help="With --on: folder for what was trained.")] = Path("truthfl-plan"),
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """What each client would be asked to do and paid for it. Of a job on data, nothing runs but the server's own pilot.

    Example: truthfl plan hospital.toml --contract lceme --json
    """
    from truthfl.cli.plan_output import as_json, print_plan
    from truthfl.cli.planned import plan_and_search, plan_constants_job, plan_data_job
    from truthfl.job import ConstantsJob, read_job
    from truthfl.mechanism.audition import Audition
    from truthfl.mechanism.deviation import best_deviation

    job, more, of_noise = read_job(job_file), list[str](), {}
    if contract is not None:
        job = job.with_contract(contract)
    if isinstance(job, ConstantsJob):
        if on is not None:
            raise InputError("--on is for a job on data; this one states constants and is not trained.")
        planned = plan_constants_job(job)
    else:
        from truthfl.cli.privacy_output import privacy_json, privacy_sentence

        with nullcontext() if on is None else exit_on_failure(out), workers_on(on) as workers:
            plan, lies = plan_and_search(job, workers, out)
        privacy, of_noise = privacy_sentence(plan), privacy_json(plan)
        labels = plan.contract.labels if isinstance(plan.contract, Audition) else job.clients.dataset_size
        more = [*([] if privacy is None else [privacy]), *job.server.label_time_warnings(int(max(labels)))]
        if plan.audition is not None:
            from truthfl.cli.audition_output import audition_json, print_audition

            asked = set(plan.clients.name or ())
            left_out = [name for name in job.clients.name if name not in asked]
            if json:
                print_json(audition_json(plan, lies, left_out, job.server) | of_noise)
            else:
                print_audition(plan, lies, left_out, job.server, pictures=job.task.is_pictures)
                _print_lines(more)
            return
        planned = plan_data_job(job, plan, lies)
    deviation = best_deviation(planned.contract, planned.clients, planned.model, planned.training)
    if json:
        print_json(as_json(planned, deviation) | of_noise)
    else:
        print_plan(planned, deviation)
        _print_lines(more)


def _print_lines(lines: list[str]) -> None:
    for line in lines:
        print(line)
