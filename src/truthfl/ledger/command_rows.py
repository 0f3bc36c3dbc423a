"""Commands and admissions by invitation as rows of the ledger, and their checks.

An invitation can be used once. The row of its use has the digest of its code as key, and has the code itself, which
only the invited participant knew before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from truthfl.errors import InputError, ServiceError
from truthfl.ledger.book import Ledger
from truthfl.ledger.commands import (
    END,
    Command,
    CommandLog,
    code_digest,
    read_time,
    valid_commands,
)
from truthfl.ledger.documents import signed
from truthfl.ledger.entry import Conflict, Entry, Fault, fault_at
from truthfl.ledger.job_view import LOST_START, JobView, job_view
from truthfl.ledger.signing import PrivateKey, normal_public_line, public_line
from truthfl.texts import LONGEST_NAME, is_plain, plain

COMMAND = "command"  # of the ledger's rows
MAX_CONFLICTS = 20


def give_command(ledger: Ledger, job: str, key: PrivateKey, decide: Callable[[], Command]) -> Entry:
    """Sign a command and write it as the job's next. `decide` makes it, again if another command comes first."""
    for _ in range(MAX_CONFLICTS):
        command = decide()
        given = valid_commands(ledger.entries(job, COMMAND), job, public_line(key))
        if given:
            last = given[-1][1]
            command = replace(command, number=last.number + 1, previous=last.digest)
        try:
            return ledger.append(job, COMMAND, str(command.number), signed(key, command.document()))
        except Conflict:
            continue
    raise ServiceError(f"others give commands to job {job!r} at the same time; try again.")


def command_faults(view: JobView) -> Iterator[Fault]:
    """Faults of commands: their numbers, their form, and whether the job's operator signed them."""
    operator_key = "" if view.job is None else str(view.job.document["operator_key"])
    log = CommandLog(view.name, operator_key)
    for number, entry in enumerate(view.commands, start=1):
        if entry.key != str(number):
            yield fault_at(entry, f"it is where command {number} should be")
        fault = log.add(entry)
        if fault is not None:
            yield fault_at(entry, fault)


def admission_faults(view: JobView) -> Iterator[Fault]:
    """Faults of admissions."""
    for entry in view.admissions.values():
        fault = admission_fault(view, entry)
        if fault is not None:
            yield fault_at(entry, fault)


def admission_fault(view: JobView, entry: Entry) -> str | None:
    """What is wrong with an admission; None if it has the code of an earlier invitation from the operator."""
    document = entry.document
    if set(document) != {"client", "public_key", "invitation", "code"}:
        return "it does not have the parts of an admission"
    invitation = view.state.invitations.get((document["client"], entry.key))
    if invitation is None or invitation[0].sequence >= entry.sequence:
        return "the operator did not invite them before it"
    code = document["code"]
    if not is_plain(code, LONGEST_NAME) or code_digest(code) != entry.key or document["invitation"] != entry.key:
        return "its code is not that of the invitation"
    return None


def end_faults(view: JobView) -> Iterator[Fault]:
    """Faults of the entry of an early end: a command comes before it, no round after it, and it counts all rounds."""
    if view.ended is None:
        return
    if not _is_commanded(view, view.ended):
        yield fault_at(view.ended, "the operator gave no command to end the job before it")
    document, later = view.ended.document, [entry for entry in view.rounds if entry.sequence > view.ended.sequence]
    if later:
        yield fault_at(later[0], "it comes after the job was ended")
    if set(document) - {"lost"} != {"rounds", "asked"} or document["rounds"] != len(view.rounds):
        yield fault_at(view.ended, "it does not have the parts of an ended job, or counts other rounds")
        return
    if view.taking_part is None:
        if view.agreement is not None or view.rounds or document["asked"]:
            yield fault_at(view.ended, "it comes before it is known who takes part")
        return
    terms, lost = view.taking_part.terms, "lost" in document
    if lost and not _is_lost(view, document["lost"]):
        yield fault_at(view.ended, "it says that the model is lost, and not in which round")
        return
    if terms.rounds <= len(view.rounds) and not lost:
        yield fault_at(view.ended, "all rounds of the contract are there")
    sometimes = {offer.client.name for offer in view.taking_part.offers if offer.client.participation < 1}
    if set(document["asked"]) != sometimes:
        yield fault_at(view.ended, "it counts rounds of others than those who are asked in some")
        return
    for name, asked in document["asked"].items():
        most = view.asked[name] + terms.rounds - len(view.rounds)
        if type(asked) is not int or not view.asked[name] <= asked <= most:
            yield fault_at(view.ended, f"its {asked} rounds of {name} are not from {view.asked[name]} to {most}")


def _is_lost(view: JobView, number: object) -> bool:
    """Whether this round, which changed the model, or the solo models from which rounds start, can be lost."""
    if type(number) is int and number == LOST_START:
        return view.taking_part is not None and view.taking_part.terms.starts_from_solo_models
    if type(number) is not int or not 1 <= number <= len(view.rounds):
        return False
    document = view.rounds[number - 1].document
    return bool(document["model"] != document["previous"])


def _is_commanded(view: JobView, ended: Entry) -> bool:
    return any(command.kind == END and entry.sequence < ended.sequence for entry, command in view.valid_commands)


ADMISSION = "admission"  # of the ledger's rows
CODE_BYTES = 18
READ = ("job", "command", ADMISSION, "enrolment")
NO_INVITATION = "this invitation is not of this server's job; ask the operator for another one."


def new_code() -> str:
    """A code that nobody can guess."""
    return secrets.token_urlsafe(CODE_BYTES)


def admit(ledger: Ledger, job: str, request: Mapping[str, Any]) -> tuple[str, str]:
    """Admit a participant with an invitation's code and the given public key; return name and key.

    Raise InputError if there is no such invitation, it has expired, or it admitted another key.

    request  untrusted: `name`, `code` and `public_key`
    """
    name, code = (str(request.get(field, "")) for field in ("name", "code"))
    if not is_plain(name, LONGEST_NAME) or not is_plain(code, LONGEST_NAME):
        raise InputError(NO_INVITATION)
    key, digest = normal_public_line(str(request.get("public_key", ""))), code_digest(code)
    view = admission_view(ledger, job)
    if (name, digest) not in view.state.invitations:
        raise InputError(NO_INVITATION)
    _, invitation = view.state.invitations[name, digest]
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
        ledger.append(job, ADMISSION, digest, document)
    except Conflict:
        raise InputError("this invitation was used already; ask the operator for another one.") from None
    return name, key


def admission_view(ledger: Ledger, job: str) -> JobView:
    """The part of the job that admissions need. It has no rounds, because strangers can trigger the reading."""
    return job_view(job, [entry for kind in READ for entry in ledger.entries(job, kind)])


def admitted_keys(view: JobView) -> dict[str, str]:
    """By name: the last admitted public key; rows without an invitation do not count."""
    valid = [entry.document for entry in view.admissions.values() if admission_fault(view, entry) is None]
    return {str(document["client"]): str(document["public_key"]) for document in valid}


def keys_by_admission(ledger: Ledger, job: str, names: Collection[str]) -> dict[str, str]:
    """By name: the public keys of the clients among these who were admitted to the job.

    A client who is not invited to this job, but was admitted to an earlier one of the same operator, keeps that key.
    """
    view = admission_view(ledger, job)
    invited = {name for name, _ in view.state.invitations}
    earlier: dict[str, str] = {}
    for other in dict.fromkeys(entry.job for entry in ledger.entries(kind=ADMISSION) if entry.job != job):
        seen = admission_view(ledger, other)
        if _operator_of(seen) is not None and _operator_of(seen) == _operator_of(view):
            earlier |= admitted_keys(seen)
    known = {name: key for name, key in earlier.items() if name not in invited} | admitted_keys(view)
    return {name: key for name, key in known.items() if name in names}


def _operator_of(view: JobView) -> str | None:
    return None if view.job is None else view.job.document.get("operator_key")
