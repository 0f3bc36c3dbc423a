"""The operator's commands from her page: what it may ask for, and writing it, signed, to the ledger."""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from pathlib import Path

from truthfl.errors import InputError
from truthfl.federation.deployed.admission import invite_fields, needs_address, new_invitation, served_in
from truthfl.federation.deployed.invitations import Invitation
from truthfl.federation.operator.approval import answer_plan
from truthfl.federation.operator.commands import (
    STAGES,
    commanded_state,
    extended_until,
    require_held,
    require_not_paused,
    require_paused,
    require_removable,
)
from truthfl.federation.operator.job_status import ADMITTED, AWAITED, INVITED, JobStatus
from truthfl.federation.operator.job_watch import JobWatch
from truthfl.federation.operator.live_status import ENROLLING, LiveStatus, read_serving
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import digest
from truthfl.ledger.command_rows import give_command
from truthfl.ledger.commands import (
    ACCEPT,
    APPROVE,
    DISAPPROVE,
    END,
    EXTEND,
    INVITE,
    PAUSE,
    REFUSE,
    REMOVE,
    RESUME,
    Command,
    new_command,
    time_text,
)
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.signing import PrivateKey, public_line
from truthfl.page.http import StaleError, body_fields, require_expected
from truthfl.texts import LONGEST_SENTENCE, is_plain

NEEDED: dict[str, set[str]] = {  # by kind: the fields that a request has besides the reason
    PAUSE: set(),
    RESUME: set(),
    END: set(),
    REMOVE: {"client"},
    EXTEND: {"stage", "minutes"},
    INVITE: {"client", "days", "address"},
    APPROVE: {"plan"},
    DISAPPROVE: {"plan"},
    ACCEPT: {"client"},
    REFUSE: {"client"},
}
OUT = ("removed", "stopped", "left out", "declined", "no answer in time")  # whom nobody need remove


@dataclass(frozen=True)
class CommandRequest:
    """What the page asks for; fields that the kind does not need are None.

    stage    as the operator says it: a key of `STAGES`
    plan     digest of the plan that is approved or declined
    days     for which an invitation is good
    address  HOST:PORT where the invited reaches the server; "" for where it listens
    """

    kind: str
    why: str
    client: str | None = None
    stage: str | None = None
    minutes: int | None = None
    plan: str | None = None
    days: int | None = None
    address: str | None = None


@dataclass(frozen=True)
class WrittenCommand:
    """A command's row in the ledger, and the invitation if it is one: the only time that its code is told."""

    row: int
    invitation: Invitation | None = None

    def document(self) -> dict[str, object]:
        """For the page."""
        if self.invitation is None:
            return {"row": self.row}
        told = {name: getattr(self.invitation, name) for name in ("name", "expires")}
        return {"row": self.row, "invitation": told | {"line": self.invitation.line(), "text": self.invitation.text()}}


def parse_command(body: bytes) -> CommandRequest:
    """The request in this body."""
    optional = {"client": str, "stage": str, "minutes": int, "plan": str, "days": int, "address": str}
    fields = body_fields(body, {"kind": str, "why": str}, optional=optional)
    require_expected(fields["kind"] in NEEDED and set(fields) - {"kind", "why"} == NEEDED[fields["kind"]])
    request = CommandRequest(**fields)
    if not request.why.strip() or not is_plain(request.why, LONGEST_SENTENCE):
        raise InputError(f"say why, in one line of up to {LONGEST_SENTENCE} letters; it stands in the ledger.")
    return request


def extendable(status: JobStatus) -> tuple[str, ...]:
    """The stage whose deadline can be extended now, as the operator says it; nothing if it has none."""
    return tuple(word for word, stage in STAGES.items() if stage == status.stage and status.deadline is not None)


def invitable(status: JobStatus) -> tuple[str, ...]:
    """Who can be invited now."""
    if status.stage != ENROLLING or status.ended is not None:
        return ()
    return tuple(one.name for one in status.participants if one.state in (AWAITED, INVITED, ADMITTED))


def asks_address(folder: Path) -> bool:
    """Whether who invites has to say where participants reach the server."""
    try:
        serving = read_serving(folder)
    except InputError:
        return True
    return serving is not None and needs_address(serving)


def give(watched: JobWatch, ledger_address: str, key: PrivateKey | None, request: CommandRequest) -> WrittenCommand:
    """Write the command. An error says why it cannot be given now."""
    if key is None:
        raise InputError("there is no key here to sign with; start the page with --key.")
    plan = watched.waiting_plan()
    if request.plan is not None and (plan is None or digest(plan.document()) != request.plan):
        raise StaleError("another plan waits now, or none; look at that one.")
    invitation = _new_invitation(watched, request) if request.kind == INVITE else None
    with open_ledger(ledger_address, key) as ledger:

        def decide() -> Command:
            view = job_view(watched.job, ledger.entries(watched.job))
            if view.job is None or view.job.document.get("operator_key") != public_line(key):
                raise InputError("the key of this page is not the one that the job was begun with; start it with that.")
            fields = _own_fields(watched, view, request, invitation)
            return new_command(request.kind, watched.job, user_name(), request.why.strip(), **fields)

        entry = give_command(ledger, watched.job, key, decide)
    if request.plan is not None and plan is not None:
        answer_plan(watched.folder, plan, approved=request.kind == APPROVE)
    return WrittenCommand(entry.sequence, invitation)


def _new_invitation(watched: JobWatch, request: CommandRequest) -> Invitation:
    assert request.client is not None
    assert request.days is not None
    return new_invitation(served_in(watched.folder), request.client, request.address or None, request.days)


def _own_fields(
    watched: JobWatch, view: JobView, request: CommandRequest, invitation: Invitation | None
) -> dict[str, str]:
    """The fields of this kind of command; an error if the job, as it is now, cannot take it."""
    if request.kind in (ACCEPT, REFUSE) and request.client is not None:
        require_held(view, request.client, request.kind)
        return {"client": request.client}
    commanded_state(view)
    if invitation is not None:
        return invite_fields(view, _current(watched), served_in(watched.folder), invitation)
    if request.kind == PAUSE:
        require_not_paused(view)
    if request.kind == RESUME:
        require_paused(view)
    if request.client is not None:
        require_removable(view, request.client, _current(watched))
        return {"client": request.client}
    if request.stage is not None:
        stage, until = extended_until(view, _current(watched), request.stage, request.minutes, None)
        return {"stage": stage, "until": time_text(until)}
    return {} if request.plan is None else {"plan": request.plan}


def _current(watched: JobWatch) -> LiveStatus | None:
    """What the job's running server says; None if none runs."""
    live = watched.live()
    return live if live is not None and live.job == watched.job and live.is_current else None


def user_name() -> str:
    """Who acts: the account that the page's process belongs to."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "operator"
