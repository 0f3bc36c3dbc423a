"""What participants are told about the operator's commands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from truthfl.coded_text import CodedText, coded, moment, quoted
from truthfl.federation.protocol.live_status import AUDITIONING, ENROLLING, LABELING, OFFERING
from truthfl.federation.protocol.news import EXTENDED, PAUSED, RESUMED, STOPPED
from truthfl.ledger.command_state import REMOVED
from truthfl.ledger.commands import END, EXTEND, PAUSE, REMOVE, RESUME, Command, read_time
from truthfl.ledger.job_view import job_view

if TYPE_CHECKING:
    from truthfl.federation.protocol.enrolment import Roster

TO_DO = {
    ENROLLING: coded("news.to_enrol", "to enrol"),
    OFFERING: coded("news.to_answer", "to answer your offer"),
    LABELING: coded("news.to_label", "to label"),
    AUDITIONING: coded("news.to_train", "to send the model that you train alone"),
}
ABOUT = {PAUSE: PAUSED, RESUME: RESUMED, EXTEND: EXTENDED}
PAUSED_NEWS = coded("news.paused", "The operator paused the job; nothing is asked of you until it goes on.")


def tell_command(roster: Roster, command: Command) -> None:
    """Tell those who are connected what a command means for them."""
    if command.kind == REMOVE:
        tell_removed(roster, command.fields["client"])
        return
    sentence = _sentence(command)
    if sentence is not None:
        nodes = [node for name, node in roster.node_of.items() if name not in roster.control.removed]
        roster.tell(nodes, sentence, over=False, about=ABOUT.get(command.kind, ""))


def tell_removed(roster: Roster, name: str) -> None:
    """Tell a removed client that she is, and why, if she is connected; who has a contract still gets her receipt."""
    node = roster.node_of.get(name)
    if node is None:
        return
    view = job_view(roster.job_name, roster.ledger.entries(roster.job_name))
    answer = view.answers.get(f"{view.last_version}/{name}")
    has_contract = answer is not None and answer.document["document"]["kind"] == "acceptance"
    sentence = _removed_news(roster.control.removed[name])
    if has_contract:
        words = "{removed} You are paid for what you delivered, and get your receipt at the end."
        sentence = coded("news.removed_paid", words, removed=sentence)
    roster.tell([node], sentence, over=not has_contract, about=STOPPED)


def tell_newcomer(roster: Roster, name: str) -> None:
    """Tell a client who has just connected what concerns her: that she is removed, or that the job is paused."""
    if name in roster.control.removed:
        tell_removed(roster, name)
    elif roster.control.paused:
        roster.tell([roster.node_of[name]], PAUSED_NEWS, over=False, about=PAUSED)


def ended_news(why: str) -> CodedText:
    """That the operator ended the job before there was a contract; `why` is her reason, or empty."""
    if why:
        words = "The operator ended the job before there was a contract, and nobody is paid: {reason}."
        return coded("news.ended_early_reason", words, reason=quoted(why))
    return coded("news.ended_early", "The operator ended the job before there was a contract, and nobody is paid.")


def _removed_news(reason: str) -> CodedText:
    """That she was removed; `reason` as it stands in rejections."""
    why = reason.removeprefix(REMOVED).removeprefix(": ")
    if why:
        words = "Nothing more is asked of you: you were removed by the operator: {reason}."
        return coded("news.removed_reason", words, reason=quoted(why))
    return coded("news.removed", "Nothing more is asked of you: you were removed by the operator.")


def _sentence(command: Command) -> CodedText | None:
    """A sentence for all; None if the command does not concern them."""
    why = quoted(command.why)
    if command.kind == PAUSE:
        words = "The operator paused the job; nothing is asked of you until it goes on: {reason}."
        return coded("news.paused_reason", words, reason=why) if why else PAUSED_NEWS
    if command.kind == RESUME:
        if why:
            return coded("news.resumed_reason", "The operator resumed the job: {reason}.", reason=why)
        return coded("news.resumed", "The operator resumed the job.")
    if command.kind == END:
        paid = coded("news.delivered_is_paid", "What was delivered is paid; your receipt has the command.")
        if why:
            return coded("news.ended_reason", "The operator ends the job: {reason}. {paid}", reason=why, paid=paid)
        return coded("news.ended", "The operator ends the job. {paid}", paid=paid)
    if command.kind == EXTEND:
        until, task = read_time(command.fields["until"]), TO_DO[command.fields["stage"]]
        time = moment(clock_time(until), until.timestamp())
        if why:
            words = "The operator gives you until {time} {task}: {reason}."
            return coded("news.extended_reason", words, time=time, task=task, reason=why)
        return coded("news.extended", "The operator gives you until {time} {task}.", time=time, task=task)
    return None


def clock_time(time: datetime) -> str:
    """Hours and minutes in UTC, with the date unless it is today."""
    day = "" if time.date() == datetime.now(UTC).date() else f"{time:%Y-%m-%d} "
    return f"{day}{time:%H:%M} UTC"
