"""One row of the ledger: what is to be written, what was written, and how its hash is made. Looks at `canonical`.

The hash is over everything in the row with the payload's digest in place of the payload, so that a chain of rows can
be checked by those who may not see what others were paid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, canonical_bytes, digest, read_document
from truthfl.ledger.schema import BEFORE_THE_FIRST, KINDS

HASHED = ("sequence", "at", "job", "kind", "key", "payload", "previous")
LONGEST_NAME = 300


def link_hash(link: Mapping[str, Any]) -> str:
    """The hash of a row, from its link: the row with the payload's digest in place of the payload."""
    return digest({part: link[part] for part in HASHED})


def payload_digest(payload: str) -> str:
    return sha256(payload.encode()).hexdigest()


def payload_text(payload: Document) -> str:
    """The payload as it is written down; it must read back as itself."""
    text = canonical_bytes(payload).decode()
    if canonical_bytes(read_document(text, "a payload")).decode() != text:
        raise InputError("a payload has keys that are not text; all its keys must be.")
    return text


def entry_after(head: Entry | None, draft: Draft, at: str) -> Entry:
    """The row that writes this down behind the one before."""
    sequence = 1 if head is None else head.sequence + 1
    previous = BEFORE_THE_FIRST if head is None else head.hash
    unsealed = Entry(sequence, at, draft.job, draft.kind, draft.key, draft.payload, previous, hash="")
    sealed = link_hash(unsealed.link())
    return Entry(sequence, at, draft.job, draft.kind, draft.key, draft.payload, previous, sealed)


def draft_of(item: Item) -> Draft:
    """What would be written, if it can be."""
    if item.kind not in KINDS:
        raise InputError(f"the ledger has no entries of kind {item.kind!r}; the kinds are {', '.join(KINDS)}.")
    for what, name in (("job", item.job), ("key", item.key)):
        _check_name(what, name)
    return Draft(item.job, item.kind, item.key, payload_text(item.payload))


def _check_name(what: str, name: str) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        raise InputError(f"the {what} of an entry must be a text of 1 to {LONGEST_NAME} characters.")
    if "\0" in name or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise InputError(f"the {what} {name!a} of an entry has characters that cannot be stored; leave them out.")


@dataclass(frozen=True)
class Item:
    """Something to be written down. A job says a thing of one kind under one key once."""

    job: str
    kind: str
    key: str
    payload: Document


@dataclass(frozen=True)
class Draft:
    """An item that was found fit, its payload in canonical form."""

    job: str
    kind: str
    key: str
    payload: str

    @property
    def name(self) -> tuple[str, str, str]:
        return self.job, self.kind, self.key


@dataclass(frozen=True)
class Entry:
    """A row of the ledger, column by column.

    sequence   1, 2, 3, …
    at         when, in UTC, as ISO 8601 has it, with microseconds
    job, kind, key    what it is about; together they are there once
    payload    the canonical JSON
    previous   the hash of the row before; 64 zeros in the first
    hash       of this row
    """

    sequence: int
    at: str
    job: str
    kind: str
    key: str
    payload: str
    previous: str
    hash: str

    @cached_property
    def document(self) -> dict[str, Any]:
        """The payload, read."""
        return read_document(self.payload, f"the payload of entry {self.sequence}")

    @property
    def name(self) -> tuple[str, str, str]:
        return self.job, self.kind, self.key

    def link(self) -> dict[str, Any]:
        """The row as others may see it: the payload's digest in place of the payload."""
        return {
            "sequence": self.sequence,
            "at": self.at,
            "job": self.job,
            "kind": self.kind,
            "key": self.key,
            "payload": payload_digest(self.payload),
            "previous": self.previous,
            "hash": self.hash,
        }
