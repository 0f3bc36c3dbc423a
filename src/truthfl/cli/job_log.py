"""Lines of a job's log: one for each new ledger entry or stage, as text for people or JSON for programs.

Only named fields of an entry get into a line, so that no secret of a document does.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

from truthfl.errors import InputError
from truthfl.federation.protocol.live_status import RoundWaits, StageChange
from truthfl.federation.protocol.narration import describe_entry, describe_row, waits_words
from truthfl.ledger.entry import Entry
from truthfl.ledger.job_terms import JobTerms
from truthfl.texts import plain

TEXT, JSON = "text", "json"
FORMATS = (TEXT, JSON)
REFUSED = "refused"  # the event of somebody who was not let in
WARNING = "warning"
LONGEST_LINE = 1000
NUMBERS = {  # by kind: the fields of its document that are in a JSON line
    "enrolment": ("samples",),
    "plan": ("step_size", "expected_loss"),
    "hold": ("solo_loss",),
    "audition": ("solo_loss", "passed"),
    "round": ("round", "loss", "accuracy"),
    "rejection": ("round",),
    "test": ("loss", "accuracy", "samples"),
    "settlement": ("delivered", "asked", "pay"),
    "payment": ("amount",),
}
WORDS = {"rejection": ("stage", "reason"), "payment": ("state", "currency")}
SIGNED_KINDS = ("answer", "final", "offer", "command")  # whose entries hold a document with its signature


def require_format(name: str) -> str:
    """The name if it is one of a format; an error otherwise."""
    if name not in FORMATS:
        raise InputError(f"log is {plain(name, 40)!r}; it must be {' or '.join(FORMATS)}.")
    return name


def log_line(entry: Entry, terms: JobTerms | None, log_format: str = TEXT) -> str | None:
    """One line about this entry; None in the text format for kinds that it leaves out.

    terms   the job's, None before there are any; they say what a minor unit is
    """
    try:
        if log_format == TEXT:
            line = describe_entry(entry, terms)
            return None if line is None else plain(f"{_local_clock(entry.at)} {line}", LONGEST_LINE)
        return _json(_entry_fields(entry, terms))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        words = f"entry {entry.sequence} was not written by truthfl"
        return (
            plain(words) if log_format == TEXT else _json(_common(entry.at, "warning", "unreadable", entry.job, words))
        )


def stage_line(job: str, change: StageChange | RoundWaits, log_format: str = TEXT) -> str:
    """One line about the stage that the server has entered, about a pause, or a round that waits for people."""
    if isinstance(change, RoundWaits):
        return _waits_line(job, change, log_format)
    until = "" if change.deadline is None else f", until {_local_clock(change.deadline)}"
    words = f"stage: {change.stage}{', paused' if change.paused else until}"
    if log_format == TEXT:
        return plain(f"{_local_clock(change.at)} {words}", LONGEST_LINE)
    fields = _common(change.at, "info", "stage", job, words)
    return _json(fields | {"stage": plain(change.stage), "paused": change.paused, "deadline": change.deadline})


def event_line(event: str, job: str, message: str) -> str:
    """A JSON line about something that is in no ledger, of this moment."""
    level = "warning" if event in (REFUSED, WARNING) else "info"
    return _json(_common(datetime.now(UTC).isoformat(), level, event, job, message))


def _waits_line(job: str, waits: RoundWaits, log_format: str) -> str:
    words = f"{waits_words(waits)}, until {_local_clock(waits.until)} at most"
    if log_format == TEXT:
        return plain(f"{_local_clock(waits.at)} {words}", LONGEST_LINE)
    fields = _common(waits.at, "warning", "waits", job, words)
    return _json(fields | {"round": waits.round, "deadline": plain(waits.until)})


def _entry_fields(entry: Entry, terms: JobTerms | None) -> dict[str, Any]:
    level = "warning" if entry.kind in ("rejection", "hold") else "info"
    fields = _common(entry.at, level, entry.kind, entry.job, describe_row(entry, terms))
    document = entry.document
    fields |= {"client": _client_of(entry), "sequence": entry.sequence}
    fields |= {name: document[name] for name in NUMBERS.get(entry.kind, ()) if _is_number(document.get(name))}
    return fields | {name: plain(document[name]) for name in WORDS.get(entry.kind, ()) if name in document}


def _common(at: str, level: str, event: str, job: str, message: str) -> dict[str, Any]:
    words = plain(message, LONGEST_LINE)
    return {
        "time": plain(at),
        "level": level,
        "event": plain(event),
        "job": plain(job),
        "client": None,
        "message": words,
    }


def _client_of(entry: Entry) -> str | None:
    """Whom the entry is about; None if it is about all, or about a node that is no client."""
    document = entry.document
    inner = document.get("document", {}) if entry.kind in SIGNED_KINDS else document
    name = entry.key.partition("/")[2] if entry.kind == "offer" else inner.get("client")
    if entry.kind == "enrolment":
        name = document["name"]
    return None if name is None else plain(name)


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


def _local_clock(at: str) -> str:
    """The time of day, as the operator's clock shows it."""
    return f"{datetime.fromisoformat(at).astimezone():%H:%M:%S}"


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)
