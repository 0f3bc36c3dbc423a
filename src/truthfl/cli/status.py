"""`truthfl status`: the state of a job, once or repeatedly, as a table, JSON or metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table

from truthfl.amounts import amount_text
from truthfl.cli.contracts import CustomContract
from truthfl.cli.output import console, print_json, table
from truthfl.console.metrics import metrics_text
from truthfl.errors import InputError
from truthfl.federation.operator.job_status import JobStatus, ParticipantStatus
from truthfl.federation.operator.job_watch import job_watch
from truthfl.federation.operator.row_words import waits_words
from truthfl.texts import plain

ROWS_SHOWN, REASONS_SHOWN, LONGEST_NAME, LONGEST_REASON = 40, 5, 24, 200
COLUMNS = ["client", "state", "here", "labels", "solo loss", "rounds", "refused", "expected", "most", "pay"]


def status_table(status: JobStatus) -> Table:
    """One row for each participant."""
    units = 1 if status.money is None else status.money.minor_units
    rows = [_row(one, units) for one in status.participants[:ROWS_SHOWN]]
    if len(status.participants) > ROWS_SHOWN:
        rows.append([f"… {len(status.participants) - ROWS_SHOWN} more", *[""] * (len(COLUMNS) - 1)])
    if status.money is not None:
        money = status.money
        done = "" if money.settled is None else amount_text(money.settled, units)
        totals = [amount_text(money.expected, units), amount_text(money.most, units), done]
        rows.append(["total", *[""] * (len(COLUMNS) - 4), *totals])
    return table(f"Job {status.job}: {stage_words(status)}", COLUMNS, rows, text=(0, 1, 2))


def stage_words(status: JobStatus) -> str:
    """The stage, with its beginning and its deadline."""
    words = status.stage if status.since is None else f"{status.stage} since {local_time(status.since)}"
    if status.stage == "training" and status.rounds_planned is not None:
        words += f", {len(status.rounds):,} of {status.rounds_planned:,} rounds"
    if status.paused:
        words += ", paused"
    return words if status.deadline is None else f"{words}, until {local_time(status.deadline)}"


def local_time(at: str) -> str:
    """A time from the ledger in the operator's time zone, with the date unless it is today."""
    try:
        moment = datetime.fromisoformat(at).astimezone()
    except ValueError:
        return plain(at, LONGEST_NAME)
    today = datetime.now(UTC).astimezone().date() == moment.date()
    return f"{moment:%H:%M:%S}" if today else f"{moment:%Y-%m-%d %H:%M:%S}"


def status_lines(status: JobStatus) -> list[str]:
    """Server, model, money and problems, each in a line."""
    lines = [_server_line(status)]
    if status.waits is not None:
        waits = status.waits
        times = f"since {local_time(waits.at)}, until {local_time(waits.until)} at most"
        lines.append(plain(f"{waits_words(waits)} {times}.", LONGEST_REASON))
    last = next((point for point in reversed(status.rounds) if point.loss is not None), status.round_zero)
    if status.test is not None and status.test["loss"] is not None:
        lines.append(f"Test: loss {status.test['loss']:.4f}{_accuracy(status.test['accuracy'])}.")
    elif last is not None and last.loss is not None:
        lines.append(f"After round {last.round:,}: loss {last.loss:.4f}{_accuracy(last.accuracy)}.")
    lines += _money_lines(status)
    if status.without_receipt:
        more = len(status.without_receipt) - REASONS_SHOWN
        names = ", ".join(status.without_receipt[:REASONS_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
        lines.append(
            plain(f"Without their receipt: {names}; truthfl serve delivers it when they join.", LONGEST_REASON)
        )
    refused = sum(status.refused_at.values())
    if refused:
        by_stage = ", ".join(f"{count:,} in {stage}" for stage, count in status.refused_at.items())
        lines.append(f"Replies that were not taken: {by_stage}.")
    lines += _reasons(status)
    if status.unreadable_rows:
        lines.append(f"Beware: truthfl did not write {status.unreadable_rows:,} of the rows; truthfl ledger check.")
    return lines


def _row(one: ParticipantStatus, units: int) -> list[str]:
    here = {True: "yes" if one.samples is not None else "silent", False: "no", None: ""}[one.connected]
    labels = "" if one.labels_asked is None else f"{_or_dash(one.labels_done)}/{one.labels_asked:,}"
    rounds = f"{one.rounds_delivered:,}/{one.rounds_asked:,}" if one.rounds_asked else ""
    money = (one.expected_pay, one.most_pay, one.settled_pay)
    return [
        plain(one.name, LONGEST_NAME),
        one.state,
        here,
        labels,
        "" if one.solo_loss is None else f"{one.solo_loss:.4f}",
        rounds,
        f"{one.refused:,}" if one.refused else "",
        *("" if amount is None else amount_text(amount, units) for amount in money),
    ]


def _server_line(status: JobStatus) -> str:
    if status.running:
        there = sum(one.connected is True for one in status.participants)
        where, all_ = status.address or "this machine", len(status.participants)
        return f"The server runs at {where}; {there:,} of {all_:,} are there."
    return (
        "The job is over." if status.is_over else "No server runs it; truthfl serve, given again, goes on where it was."
    )


def _money_lines(status: JobStatus) -> list[str]:
    money = status.money
    if money is None:
        return []
    units, currency = money.minor_units, money.currency
    most = "and never more than" if money.has_cap else "and for a loss of 0"
    lines = [
        f"Expected pay {amount_text(money.expected, units)} {currency}, of which accepted "
        f"{amount_text(money.committed, units)}, {most} {amount_text(money.most, units)}."
    ]
    if money.settled is not None:
        states = {"due": money.due, "sent": money.sent, "confirmed": money.paid, "failed": money.failed}
        parts = ", ".join(f"{state} {amount_text(amount, units)}" for state, amount in states.items() if amount)
        lines.append(f"Settled {amount_text(money.settled, units)} {currency}{f': {parts}' if parts else ''}.")
    return lines


def _reasons(status: JobStatus) -> list[str]:
    """Why participants are out, and the latest refusals."""
    out = [f"{one.name}: {one.state}; {one.reason.rstrip('.')}." for one in status.participants if one.reason]
    refusals = [f"{one.name}: {last.stage}: {last.reason}." for one in status.participants for last in one.refusals[:1]]
    strangers = [f"{one.who}: {one.reason}." for one in (*status.connections, *status.strangers)]
    found = []
    for lines in (out, refusals, strangers):
        found += [plain(line, LONGEST_REASON) for line in lines[:REASONS_SHOWN]]
        if len(lines) > REASONS_SHOWN:
            found.append(f"… and {len(lines) - REASONS_SHOWN:,} more.")
    return found


def _accuracy(share: float | None) -> str:
    return "" if share is None else f", accuracy {share:.1%}"


def _or_dash(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


SECONDS_BETWEEN = 1.0

OperatorFolder = Annotated[Path, typer.Option(help="The operator's folder, as truthfl serve or truthfl run has it.")]
OneJob = Annotated[str | None, typer.Option("--job", help="One job of the ledger; the last unless given.")]
DEFAULT_FOLDER = Path("truthfl-serve")


def status(
    out: OperatorFolder = DEFAULT_FOLDER,
    job: OneJob = None,
    _contract: CustomContract = None,
    json: Annotated[bool, typer.Option("--json", help="Print all of it as JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew every second until Ctrl+C.")] = False,
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Print it in the text format of Prometheus, without names.")
    ] = False,
) -> None:
    """Show the state of a job: stage, deadline, participants, their work, the loss so far, money.

    It reads the operator's folder, while the job's server runs or afterwards, and changes nothing.

    Example: truthfl status --out served --watch
    """
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
    """On a terminal, refresh the status every second; elsewhere, print it again when it has changed."""
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
    return Group(status_table(found), *status_lines(found))
