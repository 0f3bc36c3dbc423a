"""Invitations and who was admitted by one: a signed command of the operator's, and a row when it is used.

An invitation is good once: the row of its use is known by the digest of its code, and has the code, which only the
invited knew before.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.book import Ledger
from truthfl.ledger.command_checks import admission_fault
from truthfl.ledger.commands import INVITE, Command, code_digest, read_time
from truthfl.ledger.entry import Conflict
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.signing import normal_public_line
from truthfl.texts import LONGEST_NAME, is_plain, plain

KIND = "admission"  # of the ledger's rows
CODE_BYTES = 18
READ = ("job", "command", KIND, "enrolment")
NO_INVITATION = "this invitation is not of this server's job; ask the operator for another one."


def new_code() -> str:
    """A code that nobody can guess."""
    return secrets.token_urlsafe(CODE_BYTES)


def admit(ledger: Ledger, job: str, request: Mapping[str, Any]) -> tuple[str, str]:
    """Admit who has the code of an invitation, with the public key she names; return her name and key.

    Raise InputError if there is no such invitation, it has expired, or another key was admitted by it.

    request  untrusted: `name`, `code` and `public_key`
    """
    name, code = (str(request.get(field, "")) for field in ("name", "code"))
    if not is_plain(name, LONGEST_NAME) or not is_plain(code, LONGEST_NAME):
        raise InputError(NO_INVITATION)
    key, digest = normal_public_line(str(request.get("public_key", ""))), code_digest(code)
    view = admission_view(ledger, job)
    invitation = _invitation(view, name, digest)
    if invitation is None:
        raise InputError(NO_INVITATION)
    used = view.admissions.get(digest)
    if used is not None:
        if used.document["public_key"] != key:
            raise InputError("this invitation was used already; ask the operator for another one.")
        return name, key
    expires = read_time(invitation.fields["expires"])
    if datetime.now(UTC) > expires:
        raise InputError(f"this invitation was good until {expires:%Y-%m-%d %H:%M} UTC; ask the operator for another.")
    if view.enrolments.get(name) is not None and view.enrolments[name].document["public_key"] != key:
        raise InputError(f"{plain(name)} takes part already, with another key.")
    document = {"client": name, "public_key": key, "invitation": digest, "code": code}
    try:
        ledger.append(job, KIND, digest, document)
    except Conflict:
        raise InputError("this invitation was used already; ask the operator for another one.") from None
    return name, key


def admission_view(ledger: Ledger, job: str) -> JobView:
    """The job as far as admissions need it; strangers can have it read, so it is without rounds."""
    return job_view(job, [entry for kind in READ for entry in ledger.entries(job, kind)])


def admitted_keys(view: JobView) -> dict[str, str]:
    """By name: the public key that was admitted last; rows that are not by an invitation do not count."""
    valid = [entry.document for entry in view.admissions.values() if admission_fault(view, entry) is None]
    return {str(document["client"]): str(document["public_key"]) for document in valid}


def keys_by_admission(ledger: Ledger, job: str, names: Collection[str]) -> dict[str, str]:
    """By name, for those of these names who were admitted to the job: the public key.

    Who is not invited to this job, but was admitted to an earlier one of the same operator, is known by that key.
    """
    view = admission_view(ledger, job)
    invited = {command.fields["name"] for _, command in view.valid_commands if command.kind == INVITE}
    earlier: dict[str, str] = {}
    for other in dict.fromkeys(entry.job for entry in ledger.entries(kind=KIND) if entry.job != job):
        seen = admission_view(ledger, other)
        if _operator_of(seen) is not None and _operator_of(seen) == _operator_of(view):
            earlier |= admitted_keys(seen)
    known = {name: key for name, key in earlier.items() if name not in invited} | admitted_keys(view)
    return {name: key for name, key in known.items() if name in names}


def _operator_of(view: JobView) -> str | None:
    return None if view.job is None else view.job.document.get("operator_key")


def _invitation(view: JobView, name: str, digest: str) -> Command | None:
    """The operator's invitation of this name with this code; None if there is none."""
    for _, command in view.valid_commands:
        if command.kind == INVITE and command.fields["name"] == name and command.fields["code_digest"] == digest:
            return command
    return None
