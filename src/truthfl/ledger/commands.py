"""What the operator does to a job while it runs, as signed rows of the ledger: pause, resume, end, remove, extend …

Imports `coded_text`, `canonical`, `signing` and `texts`; no database, since participants' pages read commands too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from truthfl.coded_text import coded
from truthfl.errors import InputError
from truthfl.ledger.canonical import Document
from truthfl.ledger.signing import signed_by
from truthfl.texts import LONGEST_NAME, LONGEST_SENTENCE, is_plain

if TYPE_CHECKING:
    from truthfl.ledger.entry import Entry

PAUSE, RESUME, END, REMOVE, EXTEND = "pause", "resume", "end", "remove", "extend"
INVITE, APPROVE, DISAPPROVE = "invite", "approve", "disapprove"
ACCEPT, REFUSE = "accept", "refuse"  # a solo model that is held
OWN_FIELDS: Mapping[str, tuple[str, ...]] = {  # by kind: its fields besides those of all commands
    PAUSE: (),
    RESUME: (),
    END: (),
    REMOVE: ("client",),
    EXTEND: ("stage", "until"),
    INVITE: ("name", "code_digest", "expires"),
    APPROVE: ("plan",),
    DISAPPROVE: ("plan",),
    ACCEPT: ("client",),
    REFUSE: ("client",),
}
COMMON_FIELDS = ("kind", "job", "by", "why", "at")
TIMES = ("at", "until", "expires")


@dataclass(frozen=True)
class Command:
    """One command.

    kind    a key of `OWN_FIELDS`
    by      who gives it
    why     her reason; may be empty
    at      when, ISO 8601 in UTC
    fields  those of its kind
    """

    kind: str
    job: str
    by: str
    why: str
    at: str
    fields: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, str]:
        """What is signed."""
        return {**{name: getattr(self, name) for name in COMMON_FIELDS}, **self.fields}

    @property
    def time(self) -> datetime:
        return read_time(self.at)

    @property
    def reason(self) -> str:
        """The reason behind a colon, to end a sentence with; empty if none is given."""
        return f": {self.why}" if self.why else ""


def new_command(kind: str, job: str, by: str, why: str = "", **fields: str) -> Command:
    """A command of this moment; raise `InputError` unless it is well-formed."""
    command = Command(kind, job, by, why, time_text(datetime.now(UTC)), fields)
    fault = _form_fault(command.document(), job)
    if fault is not None:
        raise InputError(f"this command cannot be given: {fault}.")
    return command


def command_fault(signed_command: Document, job: str, operator_key: str) -> str | None:
    """The first fault of an untrusted signed command to this job; None if it is well-formed and the operator's."""
    document = signed_command.get("document")
    if set(signed_command) != {"document", "signature"} or not isinstance(document, Mapping):
        return coded("fault.unsigned", "it is no signed document")
    fault = _form_fault(document, job)
    if fault is None and not signed_by(operator_key, document, str(signed_command["signature"])):
        return coded("fault.command_signature", "its signature is not of the job's operator")
    return fault


def read_command(signed_command: Document) -> Command:
    """The command in a document without fault."""
    document = signed_command["document"]
    own = {name: document[name] for name in OWN_FIELDS[document["kind"]]}
    return Command(**{name: document[name] for name in COMMON_FIELDS}, fields=own)


def valid_commands(entries: Iterable[Entry], job: str, operator_key: str) -> list[tuple[Entry, Command]]:
    """Those of these rows that hold a command of the operator's to this job, each with its command."""
    return [
        (entry, read_command(entry.document))
        for entry in entries
        if command_fault(entry.document, job, operator_key) is None
    ]


def code_digest(code: str) -> str:
    """What an invitation in the ledger has of its code, in hexadecimal."""
    return sha256(code.encode()).hexdigest()


def time_text(time: datetime) -> str:
    """ISO 8601 in UTC, in milliseconds."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def read_time(text: str) -> datetime:
    """The time in this text; ValueError if it is none, or without its distance from UTC."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return time.astimezone(UTC)


def _form_fault(document: Mapping[str, Any], job: str) -> str | None:
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in OWN_FIELDS:
        return "it is of no known kind"
    if set(document) != {*COMMON_FIELDS, *OWN_FIELDS[kind]}:
        return f"it does not have the parts of the command {kind}"
    if document["job"] != job:
        return coded("fault.command_job", "it is for another job")
    for name, value in document.items():
        longest = LONGEST_SENTENCE if name == "why" else LONGEST_NAME
        if not is_plain(value, longest) or (name != "why" and not value.strip()):
            return f"its {name} is no text of up to {longest} letters without control characters"
    for name in set(TIMES) & set(document):
        try:
            read_time(document[name])
        except ValueError:
            return f"its {name} is no time"
    return None
