"""`PaidStrategy`: conducts a job in which a Flower strategy combines the reports.

Its stages are those of every job.
"""

from __future__ import annotations

from dataclasses import replace

from flwr.app import Array, ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from truthfl.federation.protocol.audit import published_files
from truthfl.federation.protocol.planned_offers import MakePlan
from truthfl.federation.protocol.server import ActivityProgress, Operator, conduct_job, job_name
from truthfl.job import DataJob
from truthfl.learning.array_files import read_npy
from truthfl.learning.own_strategy import registered
from truthfl.ledger.job_view import JobView


def with_strategy(job: DataJob, strategy: Strategy) -> DataJob:
    """The same job, in which this strategy combines the reports."""
    return replace(job, server=replace(job.server, aggregation=registered(strategy)))


class PaidStrategy:
    """A strategy and the job in which it combines reports.

    strategy  an object; copies of it are used, in planning too
    job       its model is trained as the job says; [server] aggregation is replaced by the strategy
    name      of the job in the ledger; by default, that of the last job with the same content
    """

    def __init__(self, strategy: Strategy, job: DataJob, operator: Operator, *, name: str | None = None) -> None:
        self.job = with_strategy(job, strategy)
        self.operator = operator
        self.name = name or job_name(operator.ledger, self.job, operator.seed)
        self.view: JobView | None = None

    def start(
        self,
        grid: Grid,
        *,
        make_plan: MakePlan = lambda job, side: job.plan(side),
        progress: ActivityProgress = lambda *_: None,
    ) -> Result:
        """Conduct the job, from enrolment to receipts, except what the ledger has already; return the final model."""
        self.view = conduct_job(grid, self.job, self.name, self.operator, make_plan, progress)
        model_file, _ = published_files(self.operator.folder, self.name)
        return Result(arrays=ArrayRecord({"params": Array(read_npy(model_file))}))
