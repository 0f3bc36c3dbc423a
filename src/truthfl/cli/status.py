"""`truthfl status`: how a job stands, once or again and again, as a table, JSON or metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from truthfl.cli.output import console, print_json
from truthfl.errors import InputError

if TYPE_CHECKING:
    from rich.console import Group

    from truthfl.federation.protocol.job_status import JobStatus

SECONDS_BETWEEN = 1.0

OperatorFolder = Annotated[Path, typer.Option(help="The operator's folder, as truthfl serve or truthfl run has it.")]
OneJob = Annotated[str | None, typer.Option("--job", help="One job of the ledger; the last unless given.")]
DEFAULT_FOLDER = Path("truthfl-serve")


def status(
    out: OperatorFolder = DEFAULT_FOLDER,
    job: OneJob = None,
    json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew every second until Ctrl+C.")] = False,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Print it in the text format of Prometheus, without names.")
    ] = False,
) -> None:
    """Show how a job stands: stage and deadline, who is there and has done what, the loss so far, money.

    It reads the operator's folder, while the job's server runs or afterwards, and changes nothing.

    Example: truthfl status --out served --watch
    """
    from truthfl.console.metrics import metrics_text
    from truthfl.federation.protocol.job_watch import job_watch

    if sum((json, watch, metrics)) > 1:
        raise InputError("--json, --watch and --metrics exclude each other; say one of them.")
    with job_watch(out, job=job) as watched:
        if watch:
            _show_until_interrupted(watched.read)
        elif json:
            print_json(watched.read())
        elif metrics:
            print(metrics_text(watched.read()), end="")
        else:
            console().print(_all_of(watched.read()))


def _show_until_interrupted(read: Callable[[], JobStatus]) -> None:
    """Replace what is shown on a terminal every second; elsewhere, print it again when it has changed."""
    from rich.live import Live

    screen, last = console(), None
    try:
        if screen.is_terminal:
            with Live(console=screen, auto_refresh=False) as shown:
                while True:
                    shown.update(_all_of(read()), refresh=True)
                    time.sleep(SECONDS_BETWEEN)
        while True:
            found = read()
            if found is not last:
                screen.print(_all_of(found))
                screen.file.flush()
            last = found
            time.sleep(SECONDS_BETWEEN)
    except KeyboardInterrupt:
        return


def _all_of(found: JobStatus) -> Group:
    from rich.console import Group

    from truthfl.cli.status_output import status_lines, status_table

    return Group(status_table(found), *status_lines(found))
