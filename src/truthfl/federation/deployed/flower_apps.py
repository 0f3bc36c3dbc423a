"""The apps of a Flower project of one's own: `client_app` for its participants and `server_app` for its operator.

Imports the participant's `client_app` and `node_settings`, the protocol's `operator_folder`, `paid_strategy` and
`server`, `job`, `ledger.book` and Flower.
"""

from __future__ import annotations

import logging
from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from truthfl.errors import InputError
from truthfl.federation.participant.client_app import client_app as participants_app
from truthfl.federation.participant.node_settings import participant_of, settings_from
from truthfl.federation.participant.participant import Participant
from truthfl.federation.protocol.operator_folder import Draws, fixed_draws, kept_draws, kept_key
from truthfl.federation.protocol.paid_strategy import with_strategy
from truthfl.federation.protocol.server import Operator, conduct_job, is_complete, job_name
from truthfl.job import DataJob, read_job
from truthfl.ledger.book import Ledger, open_ledger


def client_app(task: str = "") -> ClientApp:
    """The app of participants; each node's config has name, data, home and key, as `truthfl join` gives them.

    task  what they bring, as join's --task; "" for pictures. A node's config may say another
    """

    def participant(context: Context) -> Participant:
        return participant_of(settings_from(({"task": task} if task else {}) | dict(context.node_config)))

    return participants_app(participant, logging.getLogger("flwr").error)


def server_app(job_file: Path, strategy: Strategy | None = None) -> ServerApp:
    """The app of the operator, which conducts the job; a run after a crash goes on with it.

    The run config may have `folder` for ledger, key and models ("truthfl-run"), `seed` to repeat a job exactly, and
    `authenticated`, whether the SuperLink admits registered keys alone.

    strategy  combines the reports; None for what the job says
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config, job = context.run_config, read_job(job_file)
        if not isinstance(job, DataJob):
            raise InputError(f"{job_file} has no [data]; it can be planned, but not run.")
        folder, authenticated = Path(str(config.get("folder", "truthfl-run"))), bool(config.get("authenticated", False))
        with open_ledger(folder / "ledger.db") as ledger:
            job = job if strategy is None else with_strategy(job, strategy)
            draws = _draws(folder, int(config.get("seed", -1)), ledger, job)
            key, name = kept_key(folder / "operator"), job_name(ledger, job, draws.seed, again=True)
            operator = Operator(ledger, folder, key, draws.secret, draws.seed, authenticated)
            conduct_job(grid, job, name, operator, lambda job, side: job.plan(side), lambda *_: None)

    return app


def _draws(folder: Path, seed: int, ledger: Ledger, job: DataJob) -> Draws:
    """Those of this seed; of a seed below 0, those of the job that was begun, and new ones if it is complete."""
    if seed >= 0:
        return fixed_draws(seed)
    kept = kept_draws(folder)
    return kept_draws(folder, fresh=True) if is_complete(ledger, job_name(ledger, job, kept.seed)) else kept
