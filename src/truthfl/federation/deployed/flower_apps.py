"""The apps of a custom Flower project: `client_app` for its participants and `server_app` for its operator."""

from __future__ import annotations

import logging
from pathlib import Path

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from truthfl.federation.operator.kept_jobs import JobSource, choose_job, kept_key, lock_folder
from truthfl.federation.participant.client_app import client_app as participants_app
from truthfl.federation.participant.node_settings import participant_of, settings_from
from truthfl.federation.participant.participant import Participant
from truthfl.federation.protocol.server import Operator, conduct_job, with_strategy
from truthfl.files import make_private_folder
from truthfl.job import read_job_text
from truthfl.ledger.book import open_ledger


def client_app(task: str = "") -> ClientApp:
    """The app of participants; each node's config has name, data, home and key, as `truthfl join` gives them.

    task  what the samples are for, as join's --task; "" for pictures. A node's config may override it
    """

    def participant(context: Context) -> Participant:
        return participant_of(settings_from(({"task": task} if task else {}) | dict(context.node_config)))

    return participants_app(participant, logging.getLogger("flwr").error)


def server_app(job_file: Path, strategy: Strategy | None = None) -> ServerApp:
    """The operator's app, which runs the job. A run after a crash continues the job.

    The run config may have `folder` for ledger, key and models ("truthfl-run"), and `seed` to repeat a job exactly.
    `authenticated` says whether the SuperLink admits only registered keys. `new` begins another job in a folder that
    has one.

    strategy  combines the reports; None for the strategy that the job names
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config, log = context.run_config, logging.getLogger("flwr")
        folder, seed = Path(str(config.get("folder", "truthfl-run"))), int(config.get("seed", -1))
        source = JobSource(
            read_job_text(job_file),
            job_file.parent,
            str(job_file),
            seed=None if seed < 0 else seed,
            change=lambda job: job if strategy is None else with_strategy(job, strategy),
        )
        make_private_folder(folder)
        key = kept_key(folder / "operator")
        with lock_folder(folder), open_ledger(folder / "ledger.db", key) as ledger:
            kept = choose_job(folder, ledger, source, new=bool(config.get("new", False)))
            for difference in kept.differences:
                log.warning("Job %s continues as it was begun: in %s, %s.", kept.name, job_file, difference)
            if kept.complete:
                log.warning("Job %s is complete; `new` in the run config begins another.", kept.name)
                return
            authenticated = bool(config.get("authenticated", False))
            draws = kept.draws
            operator = Operator(ledger, folder, key, draws.secret, draws.seed, authenticated)
            conduct_job(grid, kept.job, kept.name, operator, lambda job, side: job.plan(side), lambda *_: None)

    return app
