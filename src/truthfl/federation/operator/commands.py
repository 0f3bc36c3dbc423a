"""The operator's commands: which ones a job accepts now, how they are written, and what participants hear."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING

from truthfl.coded_text import CodedText, coded, moment, quoted
from truthfl.errors import InputError
from truthfl.federation.operator.live_status import (
    APPROVING,
    AUDITIONING,
    DECIDING,
    ENROLLING,
    LABELING,
    OFFERING,
    OVER,
    PLANNING,
    TESTING,
    TRAINING,
    LiveStatus,
)
from truthfl.federation.protocol.messages import EXTENDED, PAUSED, RESUMED, STOPPED
from truthfl.ledger.book import Ledger
from truthfl.ledger.command_rows import give_command
from truthfl.ledger.commands import (
    ACCEPT,
    END,
    EXTEND,
    PAUSE,
    REFUSE,
    REMOVE,
    REMOVED,
    RESUME,
    Command,
    CommandState,
    new_command,
    read_time,
    time_text,
)
from truthfl.ledger.entry import Entry
from truthfl.ledger.held_models import unseen_names, waiting_names
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.signing import PrivateKey, public_line
from truthfl.texts import plain

if TYPE_CHECKING:
    from truthfl.federation.protocol.enrolment import Roster


ORDER = (ENROLLING, PLANNING, APPROVING, OFFERING, LABELING, AUDITIONING, DECIDING, TRAINING, TESTING, OVER)
STAGES = {"enrol": ENROLLING, "answer": OFFERING, "label": LABELING, "audition": AUDITIONING}  # by the operator's word
LONGEST_EXTENSION = timedelta(days=366)


def commanded_state(view: JobView) -> CommandState:
    """What the commands so far amount to; raise `InputError` if the job takes no more."""
    if view.ended is not None:
        raise InputError(f"job {view.name} was ended; nothing can be done to it.")
    if view.test is not None:
        raise InputError(f"job {view.name} is trained and tested; nothing can be done to it.")
    state = view.state.commands.state
    if state.ended is not None:
        raise InputError(f"job {view.name} was told to end at {clock_time(state.ended.time)}; that cannot be undone.")
    return state


def command_fields(
    kind: str,
    view: JobView,
    live: LiveStatus | None,
    *,
    client: str = "",
    stage: str = "",
    minutes: float | None = None,
    until: str | None = None,
) -> dict[str, str]:
    """The fields of a command besides its reason; raise `InputError` if the job, as it is now, cannot take it.

    live            of the running server; None if it does not run
    stage           a key of `STAGES`
    minutes, until  see `extended_until`
    """
    if kind in (ACCEPT, REFUSE):
        require_held(view, client, kind)
        return {"client": client}
    if kind == REMOVE:
        require_removable(view, client, live)
        return {"client": client}
    if kind == EXTEND:
        extended, deadline = extended_until(view, live, stage, minutes, until)
        return {"stage": extended, "until": time_text(deadline)}
    paused = commanded_state(view).paused
    if kind == PAUSE and paused:
        raise InputError(f"job {view.name} is paused already; truthfl resume lets it go on.")
    if kind == RESUME and not paused:
        raise InputError(f"job {view.name} is not paused; there is nothing to resume.")
    return {}


def write_command(
    ledger: Ledger,
    job: str,
    key: PrivateKey,
    fields: Callable[[JobView], dict[str, str]],
    *,
    kind: str,
    by: str,
    why: str,
    other_key: str,
) -> Entry:
    """Sign a command and write it as the job's next.

    fields     returns the command's fields besides its reason, for the job as it is when the command is written
    other_key  the error if the job is another operator's
    """

    def decide() -> Command:
        view = job_view(job, ledger.entries(job))
        if view.job is None or view.job.document.get("operator_key") != public_line(key):
            raise InputError(other_key)
        return new_command(kind, job, by, why, **fields(view))

    return give_command(ledger, job, key, decide)


def user_name() -> str:
    """Who gives the command: the account of this process."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def require_removable(view: JobView, name: str, live: LiveStatus | None = None) -> None:
    """Raise `InputError` unless this client is in the job and was not removed. They need not have a contract.

    Also raise it if the running server has lost the model and must still repeat a round with this client's report.

    live   status of the running server; None if it does not run
    """
    state, known = commanded_state(view), _known_names(view)
    if name not in known:
        raise InputError(f"{plain(name, 60)!r} is not in job {view.name}; it has {', '.join(known)}.")
    if name in state.removed:
        raise InputError(f"{name} was removed already.")
    waits = None if live is None else live.waits
    repeats = [] if waits is None else view.rounds[max(waits.round - 1, 0) :]  # none, unless it is in the ledger
    if any(
        name in view.asked_in(row) and name not in row.document["missing"]
        for row in repeats
        if row.document["model"] != row.document["previous"]
    ):
        raise InputError(
            f"the server lost the model and repeats its rounds, and needs {name} for that: without the reports of "
            f"{name} the model is lost for good. Wait for {name}; or truthfl end ends the job and settles it."
        )


def require_held(view: JobView, name: str, kind: str) -> None:
    """Raise `InputError` unless the operator can accept or refuse the solo model of this client now.

    Once the time to refuse it is over, they can still accept it so that it is paid. This also works in a settled job.
    """
    if name in unseen_names(view):
        if kind == ACCEPT:
            return
        raise InputError(
            f"the time to refuse the solo model of {name} is over, and its pay is settled as offered; until truthfl "
            f"accept {name}, the payment is left out."
        )
    commanded_state(view)
    waiting = waiting_names(view)
    if name not in waiting:
        others = f"those of {', '.join(waiting)} do" if waiting else "nobody's does now"
        raise InputError(f"no solo model of {plain(name, 60)!r} waits for a decision; {others}.")


def _known_names(view: JobView) -> list[str]:
    job = {} if view.job is None else view.job.document.get("job", {})
    invited = [name for name, _ in view.state.invitations]
    return list(dict.fromkeys([*job.get("clients", {}).get("name", ()), *view.enrolments, *invited]))


def extended_until(
    view: JobView, live: LiveStatus | None, word: str, minutes: float | None, until: str | None
) -> tuple[str, datetime]:
    """The stage with this name and its new deadline; raise `InputError` if it is over or the time is no extension.

    live   of the running server; None if it does not run
    """
    if word not in STAGES:
        raise InputError(f"the stage is {plain(word, 60)!r}; it must be {', '.join(STAGES)}.")
    stage, state = STAGES[word], commanded_state(view)
    _require_not_over(view, live, stage, word)
    now = datetime.now(UTC)
    present = _present_deadline(live, stage) or state.extended.get(stage)
    if (minutes is None) == (until is None):
        raise InputError("say either by how many minutes, with --by, or until when, with --until.")
    if minutes is not None:
        if not 0 < minutes < LONGEST_EXTENSION.total_seconds() / 60:
            raise InputError(f"--by is {minutes:g}; it must be a number of minutes above 0, and less than a year.")
        if present is None:
            raise InputError(
                f"the deadline to {word} is not known, since the server is not there now; say --until TIME."
            )
        return stage, max(present, now) + timedelta(minutes=minutes)
    deadline = _time_of(str(until), now)
    if deadline <= now:
        raise InputError(f"{clock_time(deadline)} is past; it is {clock_time(now)}. Name a later time.")
    if present is not None and deadline <= present:
        raise InputError(f"the deadline to {word} is {clock_time(present)} already; name a later time.")
    if deadline > now + LONGEST_EXTENSION:
        raise InputError(f"{clock_time(deadline)} is more than a year ahead; name an earlier time.")
    return stage, deadline


def _require_not_over(view: JobView, live: LiveStatus | None, stage: str, word: str) -> None:
    contract = view.agreement is not None
    if stage == AUDITIONING and view.agreement is not None and not view.agreement.terms.has_solo_models:
        raise InputError(f"the contract of job {view.name} has no audition.")
    training = bool(view.auditions or view.starts or view.rounds)
    over = {
        ENROLLING: bool(view.plans),
        OFFERING: contract,
        LABELING: contract and (bool(view.commitments) or training),
        AUDITIONING: contract and training,
    }[stage]
    if over or (live is not None and live.stage in ORDER and ORDER.index(live.stage) > ORDER.index(stage)):
        raise InputError(f"the time to {word} is over in job {view.name}; it cannot be extended.")


def _present_deadline(live: LiveStatus | None, stage: str) -> datetime | None:
    if live is None or live.stage != stage or live.deadline is None:
        return None
    return read_time(live.deadline)


def _time_of(text: str, now: datetime) -> datetime:
    """A time as the operator writes it: 14:05, or 2026-05-01T14:05; in UTC unless it says otherwise."""
    try:
        clock = time.fromisoformat(text)
        return datetime.combine(now.date(), clock, clock.tzinfo or UTC).astimezone(UTC)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"--until is {plain(text, 60)!r}; it must be a time in UTC, as 14:05 or 2026-05-01T14:05."
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)


TO_DO = {
    ENROLLING: coded("news.to_enrol", "to enrol"),
    OFFERING: coded("news.to_answer", "to answer your offer"),
    LABELING: coded("news.to_label", "to label"),
    AUDITIONING: coded("news.to_train", "to send the model that you train alone"),
}
ABOUT = {PAUSE: PAUSED, RESUME: RESUMED, EXTEND: EXTENDED}
PAUSED_NEWS = coded("news.paused", "The operator paused the job; nothing is asked of you until it goes on.")


def tell_command(roster: Roster, command: Command) -> None:
    """Tell connected clients what a command means for them."""
    if command.kind == REMOVE:
        tell_removed(roster, command.fields["client"])
        return
    sentence = _sentence(command)
    if sentence is not None:
        nodes = [node for name, node in roster.node_of.items() if name not in roster.control.removed]
        roster.tell(nodes, sentence, over=False, about=ABOUT.get(command.kind, ""))


def tell_removed(roster: Roster, name: str) -> None:
    """Tell a removed client, if connected, of the removal and its reason. With a contract they still get a receipt."""
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
    """Tell a newly connected client what concerns them: that they are removed, or that the job is paused."""
    if name in roster.control.removed:
        tell_removed(roster, name)
    elif roster.control.paused:
        roster.tell([roster.node_of[name]], PAUSED_NEWS, over=False, about=PAUSED)


def ended_news(why: str) -> CodedText:
    """The news that the operator ended the job before there was a contract; `why` is their reason, or empty."""
    if why:
        words = "The operator ended the job before there was a contract, and nobody is paid: {reason}."
        return coded("news.ended_early_reason", words, reason=quoted(why))
    return coded("news.ended_early", "The operator ended the job before there was a contract, and nobody is paid.")


def _removed_news(reason: str) -> CodedText:
    """The news that a client was removed; `reason` as it stands in rejections."""
    why = reason.removeprefix(REMOVED).removeprefix(": ")
    if why:
        words = "Nothing more is asked of you: you were removed by the operator: {reason}."
        return coded("news.removed_reason", words, reason=quoted(why))
    return coded("news.removed", "Nothing more is asked of you: you were removed by the operator.")


def _sentence(command: Command) -> CodedText | None:
    """A sentence for all clients; None if the command does not concern them."""
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
