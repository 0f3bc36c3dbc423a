"""The operator's app that Flower loads in a deployment; the participants' is in `node_app`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from truthfl.errors import TruthflError
from truthfl.federation.protocol.job_control import commanded_answer
from truthfl.federation.protocol.kept_jobs import kept_job
from truthfl.federation.protocol.operator_folder import kept_key, kept_ledger_address, write_failure
from truthfl.federation.protocol.plan_files import ask_by_file
from truthfl.federation.protocol.server import Operator, conduct_job
from truthfl.ledger.book import open_ledger
from truthfl.ledger.signing import public_line

RUN_CONFIG: dict[str, str | int | float | bool] = {
    "job-name": "",
    "folder": "",
    "operator-key": "",
    "authenticated": False,
    "approved": False,
}


server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Conduct the kept job named in the run config; write an error to the operator's folder."""
    config = context.run_config
    folder = Path(str(config["folder"]))
    try:
        kept = kept_job(folder, str(config["job-name"]))
        key = kept_key(Path(str(config["operator-key"])))
        with open_ledger(kept_ledger_address(folder), key) as ledger:
            in_ledger = partial(commanded_answer, ledger, kept.name, public_line(key))
            approve = partial(ask_by_file, folder, wait=not config["approved"], in_ledger=in_ledger)
            draws, authenticated = kept.draws, bool(config["authenticated"])
            operator = Operator(ledger, folder, key, draws.secret, draws.seed, authenticated, approve)
            conduct_job(grid, kept.job, kept.name, operator, lambda job, side: job.plan(side), lambda *_: None)
    except TruthflError as error:
        write_failure(folder, error)
        raise
