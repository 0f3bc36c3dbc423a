"""The command `truthfl plan`. Imports `output`; when called, also `plan_output`, `job` and
`mechanism.deviation`.
"""

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
    from truthfl.cli.plan_output import as_json, plan_constants_job, plan_data_job, print_plan
    from truthfl.job import ConstantsJob, read_job
    from truthfl.mechanism.deviation import best_deviation

    job = read_job(job_file)
    planned = plan_constants_job(job) if isinstance(job, ConstantsJob) else plan_data_job(job)
    deviation = best_deviation(planned.contract, planned.clients, planned.model, planned.training)
    if json:
        print_json(as_json(planned, deviation))
    else:
        print_plan(planned, deviation)
