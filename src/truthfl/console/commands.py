"""The operator's commands from her page: what she may ask for now, and writing it, signed, to the ledger.

Imports `page.requests`, the protocol's `job_watch`, `live_status`, `plan_files`, and the ledger's `book`,
`command_rows`, `commands`, `signing`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from truthfl.errors import InputError
from truthfl.federation.protocol.job_status import JobStatus
from truthfl.federation.protocol.job_watch import JobWatch
from truthfl.federation.protocol.live_status import AUDITIONING, ENROLLING, LABELING, OFFERING
from truthfl.federation.protocol.plan_files import answer_plan
from truthfl.ledger.book import open_ledger
from truthfl.ledger.canonical import digest
from truthfl.ledger.command_rows import give_command
from truthfl.ledger.commands import (
    APPROVE,
    DISAPPROVE,
    END,
    EXTEND,
    PAUSE,
    REMOVE,
    RESUME,
    Command,
    new_command,
    read_time,
    time_text,
)
from truthfl.ledger.signing import PrivateKey, public_line
from truthfl.page.requests import StaleError, body_fields, require_expected
from truthfl.texts import LONGEST_SENTENCE, is_plain

KINDS = (PAUSE, RESUME, END, REMOVE, EXTEND, APPROVE, DISAPPROVE)
EXTENDABLE = (ENROLLING, OFFERING, LABELING, AUDITIONING)  # stages in which the server waits until a deadline
OUT = ("removed", "stopped", "left out", "declined", "no answer in time")
MOST_MINUTES = 60 * 24 * 365
OPERATOR = "operator"


@dataclass(frozen=True)
class CommandRequest:
    """What the page asks for; `client`, `stage` and `minutes`, and `plan`, where the kind needs them."""

    kind: str
    why: str
    client: str | None = None
    stage: str | None = None
    minutes: int | None = None
    plan: str | None = None


NEEDED = {REMOVE: {"client"}, EXTEND: {"stage", "minutes"}, APPROVE: {"plan"}, DISAPPROVE: {"plan"}}


def parse_command(body: bytes) -> CommandRequest:
    """The request in this body."""
    optional = {"client": str, "stage": str, "minutes": int, "plan": str}
    fields = body_fields(body, {"kind": str, "why": str}, optional=optional)
    require_expected(fields["kind"] in KINDS and set(fields) - {"kind", "why"} == NEEDED.get(fields["kind"], set()))
    request = CommandRequest(**fields)
    if not request.why.strip() or not is_plain(request.why, LONGEST_SENTENCE):
        raise InputError(f"say why, in one line of up to {LONGEST_SENTENCE} letters; it stands in the ledger.")
    if request.minutes is not None and not 1 <= request.minutes <= MOST_MINUTES:
        raise InputError(f"it can be extended by 1 to {MOST_MINUTES:,} minutes.")
    return request


def give(watched: JobWatch, ledger_address: str, key: PrivateKey | None, request: CommandRequest) -> int:
    """Write the command; return its row's number in the ledger. An error says why it cannot be given now."""
    status = watched.read()
    if key is None:
        raise InputError("there is no key here to sign with; start the page with --key.")
    if public_line(key) != watched.operator_key:
        raise InputError("the key of this page is not the one that the job was begun with; start it with that one.")
    _require_possible(watched, status, request)

    def decide() -> Command:
        return new_command(request.kind, watched.job, OPERATOR, request.why.strip(), **_own_fields(status, request))

    with open_ledger(ledger_address) as ledger:
        entry = give_command(ledger, watched.job, key, decide)
    plan = watched.waiting_plan()
    if plan is not None and request.plan is not None:
        answer_plan(watched.folder, plan, approved=request.kind == APPROVE)
    return entry.sequence


def _require_possible(watched: JobWatch, status: JobStatus, request: CommandRequest) -> None:
    """An error if the job, as it is now, cannot take this command."""
    if status.is_over:
        raise StaleError("the job is over; nothing can be changed.")
    if request.kind == PAUSE and status.paused:
        raise StaleError("the job is paused already.")
    if request.kind == RESUME and not status.paused:
        raise StaleError("the job is not paused.")
    if request.kind == END and status.ended is not None:
        raise StaleError("the job was ended already.")
    if request.stage is not None and request.stage not in EXTENDABLE:
        raise InputError(f"stage is {request.stage!r}; it must be one of {', '.join(EXTENDABLE)}.")
    if request.client is not None:
        states = {one.name: one.state for one in status.participants}
        if request.client not in states:
            raise InputError(f"client is {request.client!r}, who is not in this job.")
        if states[request.client] in OUT:
            raise StaleError(f"{request.client} takes no part any more.")
    if request.plan is not None:
        plan = watched.waiting_plan()
        if plan is None or digest(plan.document()) != request.plan:
            raise StaleError("another plan waits now, or none; look at that one.")


def _own_fields(status: JobStatus, request: CommandRequest) -> dict[str, str]:
    """The fields of this kind of command."""
    if request.stage is not None and request.minutes is not None:
        now = datetime.now(UTC)
        known = status.deadline if status.stage == request.stage else None
        until = max(now, now if known is None else read_time(known)) + timedelta(minutes=request.minutes)
        return {"stage": request.stage, "until": time_text(until)}
    return {name: value for name, value in (("client", request.client), ("plan", request.plan)) if value is not None}
