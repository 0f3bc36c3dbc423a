"""Run a whole job in one process: the deployed protocol with simulated clients on an in-process grid."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from flwr.serverapp import Grid

from truthfl.errors import InputError
from truthfl.federation.protocol.approval import PlanSummary
from truthfl.federation.protocol.operator_folder import fixed_draws, kept_key
from truthfl.federation.protocol.server import ActivityProgress, Operator, conduct_job, is_complete, job_name
from truthfl.federation.simulated.client_labels import has_audition
from truthfl.federation.simulated.flower_simulation import run_in_simulation
from truthfl.federation.simulated.participants import (
    drawn_labels,
    grid_of,
    participant_builder,
    simulated_participants,
)
from truthfl.federation.simulated.run_outcome import RunOutcome, outcome_of
from truthfl.job import DataJob
from truthfl.learning.pilot_design import PilotDesign
from truthfl.ledger.book import open_ledger
from truthfl.ledger.job_view import JobView, job_view


def run_job(
    job: DataJob,
    folder: Path,
    *,
    seed: int = 0,
    ledger: str | None = None,
    design: PilotDesign | None = None,
    progress: ActivityProgress = lambda *_: None,
    in_flower: bool = False,
    again: bool = False,
    show_plan: Callable[[PlanSummary], None] = lambda _: None,
) -> RunOutcome:
    """Run a job: plan, offer, label, audition, train, test, pay. Then train again for each liar, with her alone honest.

    An interrupted job in this folder is continued; of a complete one, the outcome is returned.

    ledger     a file or the address of a database; ledger.db in the folder if None
    design     of the pilot; the default if None
    in_flower  whether the nodes are those of Flower's simulation, in other processes
    again      run a complete job once more, as another job
    show_plan  called with a plan before its offers go out
    """
    federation = job.simulated_federation()
    key = kept_key(folder / "operator")
    with open_ledger(ledger or folder / "ledger.db", key) as opened_ledger:
        draws, approve = fixed_draws(seed), partial(_approve, has_audition(job), show_plan)
        operator = Operator(
            opened_ledger, folder, key, draws.secret, draws.seed, approve=approve, simulated=True, live=False
        )
        name = job_name(opened_ledger, job, seed, again=again)

        def serve(grid: Grid) -> JobView:
            return conduct_job(grid, job, name, operator, lambda job, side: job.plan(side, design), progress)

        if is_complete(opened_ledger, name):
            view = job_view(name, opened_ledger.entries(name))
        elif in_flower:
            view = run_in_simulation(len(job.clients), participant_builder(job, folder, seed), serve)
        else:
            labels = None if has_audition(job) else drawn_labels(job, federation, seed)
            view = serve(grid_of(simulated_participants(job, federation, folder, labels)))
    return outcome_of(job, federation, view, draws)


def _approve(audition: bool, show_plan: Callable[[PlanSummary], None], plan: PlanSummary) -> bool:
    """Without an audition all must be asked: the labels of all clients are drawn before the plan is made."""
    show_plan(plan)
    for name, reason in () if audition else plan.left_out.items():
        raise InputError(f"{name}: {reason}; leave {name} out of the job, or change its numbers.")
    return True
