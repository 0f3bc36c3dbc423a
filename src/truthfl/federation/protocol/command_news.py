"""What participants are told about the operator's commands.

Imports `live_status`, `news`, the ledger (`command_state`, `commands`, `job_view`); `enrolment` for types only.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from truthfl.federation.protocol.live_status import AUDITIONING, ENROLLING, LABELING, OFFERING
from truthfl.federation.protocol.news import EXTENDED, PAUSED, RESUMED, STOPPED, send_news
from truthfl.ledger.commands import END, EXTEND, PAUSE, REMOVE, RESUME, Command, read_time
from truthfl.ledger.job_view import job_view

if TYPE_CHECKING:
    from truthfl.federation.protocol.enrolment import Roster

TO_DO = {
    ENROLLING: "to enrol",
    OFFERING: "to answer your offer",
    LABELING: "to label",
    AUDITIONING: "to send the model that you train alone",
}
ABOUT = {PAUSE: PAUSED, RESUME: RESUMED, EXTEND: EXTENDED}
PAUSED_NEWS = "The operator paused the job; nothing is asked of you until it goes on"
ENDED_NEWS = "The operator ended the job before there was a contract, and nobody is paid"


def tell_command(roster: Roster, command: Command) -> None:
    """Tell those who are connected what a command means for them."""
    if command.kind == REMOVE:
        tell_removed(roster, command.fields["client"])
        return
    sentence = _sentence(command)
    if sentence is not None:
        nodes = [node for name, node in roster.node_of.items() if name not in roster.control.removed]
        send_news(roster.grid, nodes, sentence, over=False, about=ABOUT.get(command.kind, ""))


def tell_removed(roster: Roster, name: str) -> None:
    """Tell a removed client that she is, and why, if she is connected; who has a contract still gets her receipt."""
    node = roster.node_of.get(name)
    if node is None:
        return
    view = job_view(roster.job_name, roster.ledger.entries(roster.job_name))
    answer = view.answers.get(f"{view.last_version}/{name}")
    has_contract = answer is not None and answer.document["document"]["kind"] == "acceptance"
    then = " You are paid for what you delivered, and get your receipt at the end." if has_contract else ""
    reason = roster.control.removed[name]
    sentence = f"Nothing more is asked of you: you were {reason}.{then}"
    send_news(roster.grid, [node], sentence, over=not has_contract, about=STOPPED)


def tell_newcomer(roster: Roster, name: str) -> None:
    """Tell a client who has just connected what concerns her: that she is removed, or that the job is paused."""
    if name in roster.control.removed:
        tell_removed(roster, name)
    elif roster.control.paused:
        send_news(roster.grid, [roster.node_of[name]], f"{PAUSED_NEWS}.", over=False, about=PAUSED)


def _sentence(command: Command) -> str | None:
    """A sentence for all; None if the command does not concern them."""
    if command.kind == PAUSE:
        return f"{PAUSED_NEWS}{command.reason}."
    if command.kind == RESUME:
        return f"The operator resumed the job{command.reason}."
    if command.kind == END:
        return f"The operator ends the job{command.reason}. What was delivered is paid; your receipt has the command."
    if command.kind == EXTEND:
        until = read_time(command.fields["until"])
        return f"The operator gives you until {clock_time(until)} {TO_DO[command.fields['stage']]}{command.reason}."
    return None


def clock_time(time: datetime) -> str:
    """Hours and minutes in UTC, with the date unless it is today."""
    day = "" if time.date() == datetime.now(UTC).date() else f"{time:%Y-%m-%d} "
    return f"{day}{time:%H:%M} UTC"
