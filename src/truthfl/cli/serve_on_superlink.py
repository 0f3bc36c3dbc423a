"""`truthfl serve --running`: run a job on a SuperLink of Flower's that runs already."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from truthfl.cli.narrator import Narrator
from truthfl.cli.plan_approval import print_plan_summary
from truthfl.errors import ServiceError
from truthfl.federation.deployed.app_folder import write_app_folder
from truthfl.federation.deployed.apps import RUN_CONFIG
from truthfl.federation.deployed.superlink_client import (
    FLOWER_HOME,
    Connection,
    is_reachable,
    register,
    run_status,
    stop_run,
    submit,
)
from truthfl.federation.protocol.approval import PlanSummary
from truthfl.federation.protocol.kept_jobs import KeptJob
from truthfl.federation.protocol.operator_folder import keep_ledger_address, take_failure
from truthfl.federation.protocol.plan_files import answer_plan, clear_plan, shown_plan
from truthfl.ledger.book import Ledger

POLL_SECONDS = 0.5


def serve_on_superlink(
    kept: KeptJob,
    ledger: Ledger,
    ledger_address: str,
    out: Path,
    operator_key: Path,
    connection: Connection,
    public_keys: list[Path],
    *,
    ask: bool,
) -> None:
    """Submit the job and wait until its run is over; raise the error with which it failed. An interruption stops it.

    public_keys  of participants, to be registered if the SuperLink asks for keys
    ask          whether the plan's offers are sent only after the operator has approved them
    """
    if not is_reachable(connection):
        raise ServiceError(f"no SuperLink answers at {connection.address}; leave --running out to start a server.")
    take_failure(out)  # of an earlier attempt
    keep_ledger_address(out, ledger_address)
    clear_plan(out)
    settings = RUN_CONFIG | {
        "job-name": kept.name,
        "folder": str(out.resolve()),
        "operator-key": str(operator_key.resolve()),
        "authenticated": connection.root is not None,
        "approved": not ask,
    }
    for path in public_keys:
        register(connection, path, path.stem)
    run = submit(connection, write_app_folder(out / "app", run_config=RUN_CONFIG), settings)
    print(f"truthfl: job {kept.name} on the SuperLink at {connection.address}, run {run}", flush=True)
    last_plan: PlanSummary | None = None
    try:
        with Narrator(ledger, kept.name):
            while not (status := run_status(connection, run)).is_over:
                last_plan = _show_new_plan(out, last_plan, ask=ask)
                time.sleep(POLL_SECONDS)
    except (KeyboardInterrupt, typer.Abort):  # a second run of the same job must not find this one at work
        stop_run(connection, run)
        raise
    if status.state != "completed":
        raise take_failure(out) or ServiceError(f"the run on the SuperLink {status.state}: {status.details or '?'}.")


def connection_to(host: str, port: int, keys: Path | None, out: Path) -> Connection:
    """The connection to a SuperLink that runs."""
    return Connection(host, port, None if keys is None else keys / "ca.crt", out / FLOWER_HOME)


def _show_new_plan(out: Path, last: PlanSummary | None, *, ask: bool) -> PlanSummary | None:
    """Print the server's plan unless it is the last one that was printed; return it."""
    plan = shown_plan(out)
    if plan is None or plan == last:
        return last
    print_plan_summary(plan)
    if ask:
        answer_plan(out, plan, approved=typer.confirm("Send these offers?"))
    return plan
