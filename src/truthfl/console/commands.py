"""The operator's commands from the page: what it may request, and who can be invited or given more time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from truthfl.errors import InputError
from truthfl.federation.deployed.admission import invite_fields, needs_address, new_invitation, served_in
from truthfl.federation.deployed.invitations import Invitation
from truthfl.federation.operator.approval import answer_plan
from truthfl.federation.operator.commands import (
    STAGES,
    command_fields,
    commanded_state,
    user_name,
    write_command,
)
from truthfl.federation.operator.job_status import ADMITTED, AWAITED, INVITED, JobStatus
from truthfl.federation.operator.job_watch import JobWatch
from truthfl.federation.operator.live_status import ENROLLING, LiveStatus, read_serving
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import digest
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
)
from truthfl.ledger.job_view import JobView
from truthfl.ledger.signing import PrivateKey
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
OUT = ("removed", "stopped", "left out", "declined", "no answer in time")  # nobody needs to remove these


@dataclass(frozen=True)
class CommandRequest:
    """What the page requests; fields that the kind does not need are None.

    stage    a key of `STAGES`, in the operator's words
    plan     digest of the plan that is approved or declined
    days     how long an invitation is valid
    address  HOST:PORT at which the invited participant reaches the server; "" for the address at which it listens
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
    """A command's row in the ledger, and its invitation, if any. The invitation's code is shown only this once."""

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
    """The stage whose deadline can be extended now, in the operator's words; empty if there is none."""
    return tuple(word for word, stage in STAGES.items() if stage == status.stage and status.deadline is not None)


def invitable(status: JobStatus) -> tuple[str, ...]:
    """Who can be invited now."""
    if status.stage != ENROLLING or status.ended is not None:
        return ()
    return tuple(one.name for one in status.participants if one.state in (AWAITED, INVITED, ADMITTED))


def asks_address(folder: Path) -> bool:
    """Whether the operator must name the address at which participants reach the server."""
    try:
        serving = read_serving(folder)
    except InputError:
        return True
    return serving is not None and needs_address(serving)


def give(watched: JobWatch, ledger_address: str, key: PrivateKey | None, request: CommandRequest) -> WrittenCommand:
    """Write the command; an error says why it cannot be given now."""
    if key is None:
        raise InputError("there is no key here to sign with; start the page with --key.")
    plan = watched.waiting_plan()
    if request.plan is not None and (plan is None or digest(plan.document()) != request.plan):
        raise StaleError("another plan waits now, or none; look at that one.")
    invitation = _new_invitation(watched, request) if request.kind == INVITE else None
    with open_ledger(ledger_address, key) as ledger:
        entry = write_command(
            ledger,
            watched.job,
            key,
            lambda view: _own_fields(watched, view, request, invitation),
            kind=request.kind,
            by=user_name(),
            why=request.why.strip(),
            other_key="the key of this page is not the one that the job was begun with; start it with that.",
        )
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
    if invitation is not None:
        return invite_fields(view, _current(watched), served_in(watched.folder), invitation)
    if request.plan is not None:
        commanded_state(view)
        return {"plan": request.plan}
    return command_fields(
        request.kind,
        view,
        _current(watched),
        client=request.client or "",
        stage=request.stage or "",
        minutes=request.minutes,
    )


def _current(watched: JobWatch) -> LiveStatus | None:
    """The live status of the job's server; None if no server runs."""
    live = watched.live()
    return live if live is not None and live.job == watched.job and live.is_current else None
