"""The operator's signed and numbered commands to a running job, and their combined effect.

Each command has its number in the job and the digest of the one before, so an old command cannot be given again. No
database is imported, because participants' pages read commands too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from truthfl.coded_text import coded
from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, digest
from truthfl.ledger.signing import signed_by
from truthfl.texts import LONGEST_NAME, LONGEST_SENTENCE, is_plain

if TYPE_CHECKING:
    from truthfl.ledger.entry import Entry


PAUSE, RESUME, END, REMOVE, EXTEND = "pause", "resume", "end", "remove", "extend"
INVITE, APPROVE, DISAPPROVE = "invite", "approve", "disapprove"
ACCEPT, REFUSE = "accept", "refuse"  # decisions on a held solo model
OWN_FIELDS: Mapping[str, tuple[str, ...]] = {  # by kind: its fields besides the common ones
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
COMMON_FIELDS = ("kind", "job", "by", "why", "at", "number", "previous")
FIRST = "0" * 64  # `previous` of the first command
TIMES = ("at", "until", "expires")


@dataclass(frozen=True)
class Command:
    """One command.

    kind    a key of `OWN_FIELDS`
    by      the account that gives it
    why     the reason; may be empty
    at      when, ISO 8601 in UTC
    fields  the fields of its kind
    number, previous   its number in the job, from 1, and the digest of the command before
    """

    kind: str
    job: str
    by: str
    why: str
    at: str
    fields: Mapping[str, str] = field(default_factory=dict)
    number: int = 1
    previous: str = FIRST

    def document(self) -> dict[str, Any]:
        """The document that is signed."""
        return {**{name: getattr(self, name) for name in COMMON_FIELDS}, **self.fields}

    @cached_property
    def digest(self) -> str:
        """The digest that the next command has as `previous`."""
        return digest(self.document())

    @property
    def time(self) -> datetime:
        return read_time(self.at)

    @property
    def reason(self) -> str:
        """The reason after a colon, as the end of a sentence; empty if none is given."""
        return f": {self.why}" if self.why else ""


def new_command(kind: str, job: str, by: str, why: str = "", **fields: str) -> Command:
    """A new command with the present time; raise `InputError` unless it is well-formed."""
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


def next_fault(signed_command: Document, job: str, operator_key: str, last: Command | None) -> str | None:
    """As `command_fault`, and a fault if the command does not follow `last` (None for the first)."""
    fault = command_fault(signed_command, job, operator_key)
    if fault is not None:
        return fault
    number, previous = (1, FIRST) if last is None else (last.number + 1, last.digest)
    document = signed_command["document"]
    if document["number"] != number:
        return f"it is command {document['number']}, where {number} comes next"
    return None if document["previous"] == previous else "it does not have the digest of the command before"


class CommandLog:
    """The operator's commands to one job, read row by row.

    given   the valid ones, each with its row
    state   what they amount to
    """

    def __init__(self, job: str, operator_key: str) -> None:
        self.job, self.operator_key = job, operator_key
        self.given: list[tuple[Entry, Command]] = []
        self.state = CommandState()

    def add(self, entry: Entry) -> str | None:
        """Read the next row; return its fault, or None if it is the operator's next command."""
        fault = next_fault(entry.document, self.job, self.operator_key, self.given[-1][1] if self.given else None)
        if fault is None:
            command = read_command(entry.document)
            self.given.append((entry, command))
            self.state = self.state.after(command)
        return fault


def valid_commands(entries: Iterable[Entry], job: str, operator_key: str) -> list[tuple[Entry, Command]]:
    """The rows with the operator's commands to this job, in sequence, each with its command."""
    log = CommandLog(job, operator_key)
    for entry in entries:
        log.add(entry)
    return log.given


def code_digest(code: str) -> str:
    """The digest of an invitation's code in the ledger, in hexadecimal."""
    return sha256(code.encode()).hexdigest()


def time_text(time: datetime) -> str:
    """ISO 8601 in UTC, in milliseconds."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds")


def read_time(text: str) -> datetime:
    """The time in this text; ValueError if it is none or has no UTC offset."""
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
    if type(document["number"]) is not int or document["number"] < 1:
        return "its number is no whole number from 1 on"
    for name, value in document.items():
        if name == "number":
            continue
        longest = LONGEST_SENTENCE if name == "why" else LONGEST_NAME
        if not is_plain(value, longest) or (name != "why" and not value.strip()):
            return f"its {name} is no text of up to {longest} letters without control characters"
    for name in set(TIMES) & set(document):
        try:
            read_time(document[name])
        except ValueError:
            return f"its {name} is no time"
    return None


REMOVED = "removed by the operator"  # how the reason of a rejection begins


@dataclass(frozen=True)
class CommandState:
    """The state of a job after some commands.

    paused_since  None while it is not paused
    ended         the first command that ended it; None if there was none
    removed       by name: the reason, as it stands in rejections
    extended      by stage: the deadline, moved by the pauses since it was set
    """

    paused_since: datetime | None = None
    ended: Command | None = None
    removed: Mapping[str, str] = field(default_factory=dict)
    extended: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def paused(self) -> bool:
        """Whether the job is paused, and not ended."""
        return self.paused_since is not None and self.ended is None

    def after(self, command: Command) -> CommandState:
        """The state after this command, which is valid and comes next."""
        if command.kind == PAUSE and self.paused_since is None:
            return replace(self, paused_since=command.time)
        if command.kind == RESUME and self.paused_since is not None:
            length = max(command.time - self.paused_since, timedelta())
            extended = {stage: until + length for stage, until in self.extended.items()}
            return replace(self, paused_since=None, extended=extended)
        if command.kind == END and self.ended is None:
            return replace(self, ended=command)
        if command.kind == REMOVE and command.fields["client"] not in self.removed:
            return replace(self, removed={**self.removed, command.fields["client"]: removal_reason(command)})
        if command.kind == EXTEND:
            deadline = {command.fields["stage"]: read_time(command.fields["until"])}
            return replace(self, extended={**self.extended, **deadline})
        return self


def removal_reason(command: Command) -> str:
    """Why nothing more is asked of a removed client."""
    return f"{REMOVED}{command.reason}"
