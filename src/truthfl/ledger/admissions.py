"""Invitations and who was admitted by one: a signed command of the operator's, and a row when it is used.

An invitation is good once: the row of its use is known by the digest of its code. Imports `book`, `command_rows`,
`commands`, `entry`, `job_view`, `signing`.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.book import Ledger
from truthfl.ledger.commands import INVITE, Command, read_time
from truthfl.ledger.entry import Conflict
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.signing import normal_public_line
from truthfl.texts import plain

KIND = "admission"  # of the ledger's rows
CODE_BYTES = 18


def new_code() -> str:
    """A code that nobody can guess."""
    return secrets.token_urlsafe(CODE_BYTES)


def code_digest(code: str) -> str:
    """What the ledger has of a code, in hexadecimal."""
    return sha256(code.encode()).hexdigest()


def admit(ledger: Ledger, job: str, request: Mapping[str, Any]) -> tuple[str, str]:
    """Admit who has the code of an invitation, with the public key she names; return her name and key.

    Raise InputError if there is no such invitation, it has expired, or another key was admitted by it.

    request  untrusted: `name`, `code` and `public_key`
    """
    name, code, line = (str(request.get(field, "")) for field in ("name", "code", "public_key"))
    key, digest = normal_public_line(line), code_digest(code)
    view = job_view(job, ledger.entries(job))
    invitation = _invitation(view, name, digest)
    if invitation is None:
        raise InputError("this invitation is not of this server's job; ask the operator for another one.")
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
    document = {"client": name, "public_key": key, "invitation": digest}
    try:
        ledger.append(job, KIND, digest, document)
    except Conflict:
        raise InputError("this invitation was used already; ask the operator for another one.") from None
    return name, key


def admitted_keys(view: JobView) -> dict[str, str]:
    """By name: the public key that was admitted last."""
    return {str(entry.document["client"]): str(entry.document["public_key"]) for entry in view.admissions.values()}


def _invitation(view: JobView, name: str, digest: str) -> Command | None:
    """The operator's invitation of this name with this code; None if there is none."""
    for _, command in view.valid_commands:
        if command.kind == INVITE and command.fields["name"] == name and command.fields["code_digest"] == digest:
            return command
    return None
