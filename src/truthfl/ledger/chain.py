"""Verification of the hash chain: entries are numbered, and each has the hash of the entry before it.

Any changed byte is detected. A chain alone does not show that its last entries were removed, or that it was rewritten
from some entry on; clients' receipts do, since the entries that they prove must be the ledger's, and so do `anchors`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import canonical_bytes, read_document
from truthfl.ledger.entry import LINK_FIELDS, Entry, is_salt, link_hash
from truthfl.ledger.entry_kinds import GENESIS_HASH

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)


@dataclass(frozen=True)
class Fault:
    """The first fault in a sequence of entries.

    position   of the entry, counted from 0
    message    which entry it is and what is wrong with it
    """

    position: int
    message: str


def fault_at(entry: Entry, message: str) -> Fault:
    """A fault of this entry, whose kind and key are named in the message."""
    location = f"entry {entry.sequence}, {entry.kind} {entry.key!r} of job {entry.job}"
    return Fault(entry.sequence - 1, f"{location}: {message}")


def broken_link(entries: Iterable[Entry]) -> Fault | None:
    """The first fault in a whole ledger, from its first entry on; None if there is none."""
    previous, at = GENESIS_HASH, ""
    for position, entry in enumerate(entries):
        fault = (
            _text_fault(vars(entry), (*LINK_FIELDS[1:], "salt", "signature"))
            or (None if is_salt(entry.salt) else "its salt is not one that truthfl makes")
            or _payload_fault(entry.payload)
            or _link_fault(entry.link(), position + 1, previous)
            or _time_fault(entry, at)
        )
        if fault:
            return Fault(position, f"entry {position + 1}: {fault}")
        previous, at = entry.hash, entry.at
    return None


def link_fault(link: Any) -> str | None:
    """The first fault of an untrusted link, by itself."""
    return _shape_fault(link) or _text_fault(link, LINK_FIELDS[1:]) or _link_fault(link, None, None)


def _shape_fault(link: Any) -> str | None:
    if not isinstance(link, Mapping) or set(link) != set(LINK_FIELDS):
        return f"it must have the parts {', '.join(LINK_FIELDS)} and no others"
    return None


def _text_fault(values: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Fault in the types of an entry's fields, such as invalid Unicode in a manipulated SQLite file.

    names   of the fields that must be text
    """
    if type(values["sequence"]) is not int:
        return "its sequence is not a whole number"
    for name in names:
        value = values[name]
        if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
            return f"its {name} is not text"
    return None


def _time_fault(entry: Entry, at_before: str) -> str | None:
    """Fault of an entry's time, given that of the entry before."""
    if not TIME.fullmatch(entry.at):
        return "its time is not written as truthfl writes it"
    return "its time is before that of the entry before" if entry.at < at_before else None


def _payload_fault(payload: str) -> str | None:
    try:
        canonical = canonical_bytes(read_document(payload))
    except InputError:
        return "its payload is not a JSON object that can be written down"
    return None if canonical == payload.encode() else "its payload is not in canonical form"


def _link_fault(link: Mapping[str, Any], sequence: int | None, previous: str | None) -> str | None:
    """Fault of a link that should have this sequence number and previous hash; either may be None for unknown."""
    if sequence is None and link["sequence"] < 1:
        return f"its sequence is {link['sequence']}; it must be at least 1"
    if sequence is not None and link["sequence"] != sequence:
        return f"its sequence is {link['sequence']}, where {sequence} comes next; one is missing, added or moved"
    if link["sequence"] == 1:
        previous = GENESIS_HASH
    if previous is not None and link["previous"] != previous:
        return "it does not hold the hash of the entry before"
    if link["hash"] != link_hash(link):
        return "its hash is not the one of its contents; something in it was changed"
    return None
