"""A whole job with simulated participants, in one process or on Flower's simulation.

On Flower's simulation the nodes are in other processes, where their participants are built from the job.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from truthfl.errors import InputError, ServiceError, TruthflError
from truthfl.federation.operator.approval import PlanSummary
from truthfl.federation.operator.kept_jobs import fixed_draws, kept_key
from truthfl.federation.participant.client_app import client_app
from truthfl.federation.participant.participant import Participant
from truthfl.federation.protocol.server import ActivityProgress, Operator, conduct_job, is_complete, job_name
from truthfl.federation.simulated.participants import (
    drawn_labels,
    grid_of,
    has_solo_models,
    participant_builder,
    simulated_participants,
)
from truthfl.federation.simulated.report import RunOutcome, outcome_of
from truthfl.job import DataJob
from truthfl.learning.pilot.runs import PilotDesign
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
    """Run a job: plan, offer, label, audition, train, test, pay. Then train again with each liar alone honest.

    An interrupted job in this folder is continued; of a complete one, the outcome is returned.

    ledger     a file or the address of a database; ledger.db in the folder if None
    design     of the pilot; the default if None
    in_flower  whether the nodes are those of Flower's simulation, in other processes
    again      run a complete job again as a new job
    show_plan  called with a plan before its offers go out
    """
    federation = job.simulated_federation()
    key = kept_key(folder / "operator")
    with open_ledger(ledger or folder / "ledger.db", key) as opened_ledger:
        draws, approve = fixed_draws(seed), partial(_approve, has_solo_models(job), show_plan)
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
            labels = None if has_solo_models(job) else drawn_labels(job, federation, seed)
            view = serve(grid_of(simulated_participants(job, federation, folder, labels)))
    return outcome_of(job, federation, view, draws, folder / "models")


def _approve(audition: bool, show_plan: Callable[[PlanSummary], None], plan: PlanSummary) -> bool:
    """Without an audition all must be asked: the labels of all clients are drawn before the plan is made."""
    show_plan(plan)
    for name, reason in () if audition else plan.left_out.items():
        raise InputError(f"{name}: {reason}; leave {name} out of the job, or change its numbers.")
    return True


Result = TypeVar("Result")
PARTITION = "partition-id"


def run_in_simulation(
    clients: int, participant_at: Callable[[int], Participant], serve: Callable[[Grid], Result]
) -> Result:
    """Return the result of `serve`, called with a grid of simulated nodes.

    clients         the number of nodes
    participant_at  returns the participant with this index; called in other processes
    """
    if importlib.util.find_spec("ray") is None:
        raise InputError("Flower's simulation is not installed; pip install 'truthfl[simulation]' brings it.")
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    results: list[Result] = []
    errors: list[Exception] = []
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:  # noqa: ARG001
        try:
            results.append(serve(grid))
        except TruthflError as error:  # raised again below; Flower would print a traceback
            errors.append(error)

    def participant_of(context: Context) -> Participant:
        return participant_at(int(context.node_config[PARTITION]))

    run_simulation(app, client_app(participant_of), num_supernodes=clients)
    if errors:
        raise errors[0]
    if not results:
        raise ServiceError("Flower's simulation ended without a result; its own messages say why.")
    return results[0]
