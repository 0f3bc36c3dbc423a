"""Inviting a participant to a job: who can be invited when, and what her invitation has."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from truthfl.certificate_parts import WILDCARD_ADDRESSES
from truthfl.errors import InputError
from truthfl.federation.deployed.invitation import Invitation
from truthfl.federation.deployed.meeting_place import address_parts
from truthfl.federation.protocol.command_rules import commanded_state
from truthfl.federation.protocol.live_status import ENROLLING, LiveStatus
from truthfl.federation.protocol.serving_file import ServingInfo, read_serving
from truthfl.ledger.admissions import new_code
from truthfl.ledger.commands import code_digest, time_text
from truthfl.ledger.job_view import JobView
from truthfl.texts import plain_name

LONGEST_DAYS = 365.0
USUAL_DAYS = 7.0
MOST_NAMES = 10  # in a sentence


def served_in(folder: Path) -> ServingInfo:
    """What the server in this folder was started with; an error if there was none."""
    serving = read_serving(folder) if folder.is_dir() else None
    if serving is None:
        raise InputError(f"no job was served in {folder}; start truthfl serve first.")
    return serving


def needs_address(serving: ServingInfo) -> bool:
    """Whether the operator has to say where participants reach the server, since it listens at all addresses."""
    return serving.host in WILDCARD_ADDRESSES


def new_invitation(serving: ServingInfo, name: str, address: str | None, days: float) -> Invitation:
    """An invitation with a new code. It is good once the operator's command with `invite_fields` is in the ledger.

    address  HOST:PORT where she reaches the server; None for where it listens
    days     how long it is good
    """
    plain_name("name", name)
    if not 0 < days <= LONGEST_DAYS:
        raise InputError(f"days is {days:g}; it must be more than 0 and at most {LONGEST_DAYS:g}.")
    if address is None and needs_address(serving):
        raise InputError(f"the server listens at all addresses ({serving.host}); say at which HOST:PORT she finds it.")
    if address is not None:
        address_parts(address)
    try:
        root = Path(serving.root).read_text(encoding="utf-8") if serving.root else ""
    except (OSError, UnicodeDecodeError):
        raise InputError(f"{serving.root} cannot be read; it is the certificate that she needs.") from None
    if not serving.operator:
        raise InputError("it is not known which key signs this job's offers; start truthfl serve again.")
    expires = time_text(datetime.now(UTC) + timedelta(days=days))
    return Invitation(address or serving.address, name, new_code(), expires, serving.operator, root)


def invite_fields(
    view: JobView, live: LiveStatus | None, serving: ServingInfo, invitation: Invitation
) -> dict[str, str]:
    """The command's own fields, without the code; raise InputError if she cannot be invited now.

    live   of the running server; None if it does not run
    """
    name, state = invitation.name, commanded_state(view)
    if view.name != serving.job or view.job is None:
        raise InputError(f"job {view.name} is not the one that is served here, which is {serving.job}.")
    names = view.job.document["job"]["clients"]["name"]
    if name not in names:
        raise InputError(f"{name} is not among the job's clients, which are {', '.join(names[:10])}.")
    if name in state.removed:
        raise InputError(f"{name} was removed from the job; she can be invited to another one.")
    if name in view.enrolments:
        raise InputError(f"{name} takes part already.")
    if view.plans or (live is not None and live.stage != ENROLLING):
        raise InputError(f"the job has begun without {name}; she can be invited to another one.")
    return {"name": name, "code_digest": code_digest(invitation.code), "expires": invitation.expires}


def enrolment_warning(unknown: Sequence[str], enrol_seconds: float) -> str | None:
    """That the job takes people in for a shorter time than invitations are good by default; None if it does not.

    unknown  of the job's clients, those whose keys are not known and who can be invited
    """
    if not unknown or enrol_seconds >= USUAL_DAYS * 86_400:
        return None
    who = ", ".join(unknown[:MOST_NAMES]) + (f" and {len(unknown) - MOST_NAMES} more" * (len(unknown) > MOST_NAMES))
    return (
        f"Beware: {who} can be invited, and invitations are good for {USUAL_DAYS:g} days unless you say otherwise, but "
        f"the job takes people in for {enrol_seconds:,.0f} seconds (enrol_seconds). truthfl extend enrol gives more."
    )


def until_words(invitation: Invitation) -> str:
    """When it expires, for people."""
    return f"{invitation.expires[:16].replace('T', ' ')} UTC"
