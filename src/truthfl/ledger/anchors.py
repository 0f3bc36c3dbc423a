"""Anchors: the operator's signed word on how far a ledger went, kept apart from it, so that going back is found.

A hash chain does not show that its last entries were removed, or that it was written anew from some entry on. Who has
an anchor, or a client's receipt, finds both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.ledger.address import read_address
from truthfl.ledger.canonical import Document, canonical_bytes, read_document
from truthfl.ledger.documents import signed
from truthfl.ledger.entry import Entry
from truthfl.ledger.signing import PrivateKey, public_line, signed_by

FIELDS = frozenset(("kind", "sequence", "hash", "at", "public_key"))


def make_anchor(head: Entry, key: PrivateKey) -> dict[str, Any]:
    """The signed anchor of a ledger whose last entry is this one."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"kind": "anchor", "sequence": head.sequence, "hash": head.hash, "at": now}
    return signed(key, document | {"public_key": public_line(key)})


def usual_anchor_file(where: str | Path) -> Path | None:
    """The file beside a ledger in which its anchors are kept; None for a ledger that is no file."""
    address = read_address(where)
    return address.with_name(f"{address.name}.anchors") if isinstance(address, Path) else None


def anchor_text(anchor: Document) -> str:
    """The anchor as one line of text."""
    return canonical_bytes(anchor).decode()


def keep_anchor(path: Path, anchor: Document) -> None:
    """Add the anchor to this file, one per line, unless its entry has one already."""
    anchors = read_anchors(path) if path.exists() else []
    if any(kept["document"]["hash"] == anchor["document"]["hash"] for kept in anchors):
        return
    write_file(path, "".join(f"{anchor_text(one)}\n" for one in (*anchors, anchor)), private=True)


def read_anchors(path: Path) -> list[dict[str, Any]]:
    """The anchors in this file; an error if there is none, or if one is malformed or not signed by its key."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.") from None
    anchors = [_anchor(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not anchors:
        raise InputError(f"{path} has no anchor in it; truthfl ledger anchor writes them.")
    return anchors


def _anchor(line: str, what: str) -> dict[str, Any]:
    anchor = read_document(line, what)
    document = anchor.get("document")
    if set(anchor) != {"document", "signature"} or not isinstance(document, Mapping) or set(document) != FIELDS:
        raise InputError(f"{what} is no anchor; truthfl ledger anchor writes them.")
    texts = all(isinstance(document[name], str) for name in ("hash", "at", "public_key"))
    if document["kind"] != "anchor" or type(document["sequence"]) is not int or not texts:
        raise InputError(f"{what} is no anchor; truthfl ledger anchor writes them.")
    if not signed_by(document["public_key"], document, str(anchor["signature"])):
        raise InputError(f"{what} is an anchor whose signature is not of its key; it was changed.")
    return anchor


def first_contradiction(anchors: Sequence[Document], entries: Sequence[Entry]) -> str | None:
    """What contradicts the first of these anchors that does not hold; None if all hold."""
    return next(filter(None, (anchor_fault(anchor, entries) for anchor in anchors)), None)


def anchor_fault(anchor: Document, entries: Sequence[Entry]) -> str | None:
    """What contradicts this anchor in all entries of a ledger, whose chain holds; None if nothing does."""
    document = anchor["document"]
    number, made = document["sequence"], f"the anchor of {document['at']!a}"
    place = bisect_left(entries, number, key=attrgetter("sequence"))  # some before it may be numbered from below 1
    if place == len(entries):
        last = entries[-1].sequence if entries else 0
        return f"the ledger ends at entry {last}, and {made} is of entry {number}; its last rows are gone"
    if (entries[place].sequence, entries[place].hash) != (number, document["hash"]):
        return (
            f"entry {number} is not the one of {made}; the ledger was written anew from there or before, or is another"
        )
    keys = {entry.document.get("operator_key") for entry in entries if entry.kind == "job"}
    if document["public_key"] not in keys:
        return f"{made} is signed with a key that no job of the ledger names"
    return None
