"""`truthfl verify`: does lying pay, under LCEME and under other ways of paying, on the loss model?"""

from __future__ import annotations

from typing import Annotated

import typer

from truthfl.cli.output import JobFile, console, print_json, table
from truthfl.job import read_job
from truthfl.studies.lying import Answer, does_lying_pay


def verify(
    job_file: JobFile = None,
    json: Annotated[bool, typer.Option("--json", help="One object per payment rule.")] = False,
) -> None:
    """Does lying pay? The best lie under each payment rule, on the job's loss model.

    Example: truthfl verify hospital.toml
    """
    job = read_job(job_file)
    model = job.loss_model()
    batches = job.assignment(model)
    answers = does_lying_pay(job.clients, model, job.training, batches)
    if json:
        print_json(answers)
        return
    rows = [
        [
            answer.rule,
            "–" if answer.gain is None else f"{answer.gain:,.2f}",
            "–" if answer.regret is None else f"{answer.regret:.1%}",
            job.clients.label(answer.client) if answer.gain else "nobody",
            _lie(answer),
            answer.evidence,
        ]
        for answer in answers
    ]
    columns = ["payment rule", "gain", "of her pay", "best for", "her lie", "shown by"]
    out = console()
    out.print(
        table("Does lying pay? The best lie of any client, others being honest", columns, rows, text=(0, 3, 4, 5))
    )


def _lie(answer: Answer) -> str:
    if not answer.gain:
        return "none"
    parts = []
    if answer.labeling_effort == 0:
        parts.append("no labels")
    if abs(answer.batch_size - answer.assigned_batch_size) > 1e-6 * answer.assigned_batch_size:
        parts.append(f"batch {answer.batch_size:.1f}, not {answer.assigned_batch_size:.0f}")
    if abs(answer.report_scale - 1.0) > 1e-6:
        parts.append(f"report × {answer.report_scale:.2f}")
    if answer.claimed_batch_size != answer.assigned_batch_size:
        parts.append(f"claims {answer.claimed_batch_size:.0f}")
    return ", ".join(parts)
