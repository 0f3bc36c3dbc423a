"""Whether a chain of entries is whole: each numbered, each holding the hash of the one before. Looks at `entry`.

A changed byte anywhere is found. What a chain alone cannot show is that its last entries were cut off, or that it was
written anew from some entry on; for that there are the links in the clients' receipts, which must be links of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import canonical_bytes, read_document
from truthfl.ledger.entry import Entry, link_hash
from truthfl.ledger.schema import BEFORE_THE_FIRST

PARTS = tuple(field.name for field in fields(Entry))


@dataclass(frozen=True)
class Fault:
    """position: of the entry, counted from 0 in what was looked at; what: which it is and what is wrong, in words."""

    position: int
    what: str


def broken_link(entries: Iterable[Entry]) -> Fault | None:
    """The first fault in a whole ledger, from its first entry on; None if there is none."""
    previous = BEFORE_THE_FIRST
    for position, entry in enumerate(entries):
        wrong = (
            _text_fault(vars(entry))
            or _payload_fault(entry.payload)
            or _link_fault(entry.link(), position + 1, previous)
        )
        if wrong:
            return Fault(position, f"entry {position + 1}: {wrong}")
        previous = entry.hash
    return None


def broken_proof(links: Sequence[Any]) -> Fault | None:
    """The first fault in a stretch of a ledger, given by its links; None if there is none, and there are some.

    It may begin anywhere. Whoever wrote it may not be trusted.
    """
    if not isinstance(links, list | tuple) or not links:
        return Fault(0, "there are no links")
    previous, sequence = None, None
    for position, link in enumerate(links):
        wrong = _shape_fault(link) or _text_fault(link) or _link_fault(link, sequence, previous)
        if wrong:
            return Fault(position, f"link {position + 1} of {len(links)}: {wrong}")
        previous, sequence = link["hash"], link["sequence"] + 1
    return None


def _shape_fault(link: Any) -> str | None:
    if not isinstance(link, Mapping) or set(link) != set(PARTS):
        return f"it must have the parts {', '.join(PARTS)} and no others"
    return None


def _text_fault(parts: Mapping[str, Any]) -> str | None:
    """Also what a database would not have let in."""
    if type(parts["sequence"]) is not int:
        return "its sequence is not a whole number"
    for part in PARTS[1:]:
        value = parts[part]
        if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
            return f"its {part} is not text"
    return None


def _payload_fault(payload: str) -> str | None:
    try:
        again = canonical_bytes(read_document(payload))
    except InputError:
        return "its payload is not a JSON object that can be written down"
    return None if again == payload.encode() else "its payload is not in canonical form"


def _link_fault(link: Mapping[str, Any], sequence: int | None, previous: str | None) -> str | None:
    """What is wrong with a link that should have this number and follow this hash, where these are known."""
    if sequence is None and link["sequence"] < 1:
        return f"its sequence is {link['sequence']}; it must be at least 1"
    if sequence is not None and link["sequence"] != sequence:
        return f"its sequence is {link['sequence']}, where {sequence} comes next; one is missing, added or moved"
    if link["sequence"] == 1:
        previous = BEFORE_THE_FIRST
    if previous is not None and link["previous"] != previous:
        return "it does not hold the hash of the entry before"
    if link["hash"] != link_hash(link):
        return "its hash is not the one of its contents; something in it was changed"
    return None
