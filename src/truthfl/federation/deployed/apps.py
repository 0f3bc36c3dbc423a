"""The two apps that Flower runs in a deployment: the operator's ServerApp and the participants' ClientApp.

Flower finds them by their names here. Looks at `server`, `client_app`, `node_settings`, `operator_folder`.
"""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from truthfl.errors import InputError, TruthflError
from truthfl.federation.participant.client_app import client_app as app_of
from truthfl.federation.participant.node_settings import participant_of, settings_from
from truthfl.federation.participant.participant import Participant
from truthfl.federation.protocol.operator_folder import Draws, fixed_draws, kept_draws, kept_key, note_failure
from truthfl.federation.protocol.server import Operator, conduct
from truthfl.job import DataJob, read_job
from truthfl.ledger.book import open_ledger

RUN_CONFIG: dict[str, str | int | float | bool] = {
    "job-file": "",
    "job-name": "",
    "folder": "",
    "ledger": "",
    "operator-key": "",
    "seed": -1,
    "authenticated": False,
}


def _whose(context: Context) -> Participant:
    return participant_of(settings_from(context.node_config))


client_app = app_of(_whose)
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Conduct the job that the run's settings name; why it cannot be done is noted in the operator's folder."""
    config = context.run_config
    folder = Path(str(config["folder"]))
    try:
        job = read_job(Path(str(config["job-file"])))
        if not isinstance(job, DataJob):
            raise InputError("the job has no [data]; it can be planned, but not run.")
        draws = _draws(folder, int(config["seed"]))
        with open_ledger(str(config["ledger"])) as book:
            key = kept_key(Path(str(config["operator-key"])))
            operator = Operator(book, folder, key, draws.secret, draws.seed, bool(config["authenticated"]))
            name = str(config["job-name"])
            conduct(grid, job, name, operator, lambda some, side: some.plan(side), lambda *_: None)
    except TruthflError as error:
        note_failure(folder, str(error))
        raise


def _draws(folder: Path, seed: int) -> Draws:
    return kept_draws(folder) if seed < 0 else fixed_draws(seed)
