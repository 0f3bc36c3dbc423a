"""`truthfl plan`: what each client would be asked and paid. Nothing runs."""

from __future__ import annotations

from typing import Annotated

import typer

from truthfl.cli.output import JobFile, print_json


def plan(
    job_file: JobFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """What each client would be asked to do and paid for it. Of a job on data, nothing runs but the server's own pilot.

    Example: truthfl plan hospital.toml --json
    """
    from truthfl.cli.plan_output import as_json, on_data, on_paper, print_plan
    from truthfl.job import ConstantsJob, read_job
    from truthfl.mechanism.deviation import best_deviation

    job = read_job(job_file)
    planned = on_paper(job) if isinstance(job, ConstantsJob) else on_data(job)
    found = best_deviation(planned.contract, planned.clients, planned.model, planned.training)
    if json:
        print_json(as_json(planned, found))
    else:
        print_plan(planned, found)
