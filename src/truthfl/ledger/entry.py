"""Items to append, the entries they become, and an entry's hash. Imports `canonical`, `schema`.

An entry's hash covers its link: all its fields, with the payload's digest instead of the payload. So a client can check
the hash chain without seeing the payloads about other clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, canonical_bytes, digest, read_document
from truthfl.ledger.schema import GENESIS_HASH, KINDS

HASHED_FIELDS = ("sequence", "at", "job", "kind", "key", "payload", "previous")
MAX_NAME_LENGTH = 300


def link_hash(link: Mapping[str, Any]) -> str:
    """The hash of an entry, computed from its link."""
    return digest({name: link[name] for name in HASHED_FIELDS})


def payload_digest(payload: str) -> str:
    return sha256(payload.encode()).hexdigest()


def payload_text(payload: Document) -> str:
    """The payload as canonical JSON; an error if reading it back would give another document."""
    text = canonical_bytes(payload).decode()
    if canonical_bytes(read_document(text, "a payload")).decode() != text:
        raise InputError("a payload has keys that are not text; all its keys must be.")
    return text


def entry_after(head: Entry | None, item: CheckedItem, at: str) -> Entry:
    """The entry for this item that follows `head`; None for the first entry. `at` is the time."""
    sequence = 1 if head is None else head.sequence + 1
    previous = GENESIS_HASH if head is None else head.hash
    without_hash = Entry(sequence, at, item.job, item.kind, item.key, item.payload, previous, hash="")
    return replace(without_hash, hash=link_hash(without_hash.link()))


def checked_item(item: Item) -> CheckedItem:
    """The item with its payload in canonical form; an error if it cannot be written."""
    if item.kind not in KINDS:
        raise InputError(f"the ledger has no entries of kind {item.kind!r}; the kinds are {', '.join(KINDS)}.")
    for field, value in (("job", item.job), ("key", item.key)):
        _check_name(field, value)
    return CheckedItem(item.job, item.kind, item.key, payload_text(item.payload))


def _check_name(field: str, value: str) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME_LENGTH:
        raise InputError(f"the {field} of an entry must be a text of 1 to {MAX_NAME_LENGTH} characters.")
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InputError(f"the {field} {value!a} of an entry has characters that cannot be stored; leave them out.")


@dataclass(frozen=True)
class Item:
    """Content to append to the ledger. There is at most one entry with the same job, kind and key."""

    job: str
    kind: str
    key: str
    payload: Document


@dataclass(frozen=True)
class CheckedItem:
    """An item that can be written, with its payload as canonical JSON."""

    job: str
    kind: str
    key: str
    payload: str

    @property
    def unique_key(self) -> tuple[str, str, str]:
        return self.job, self.kind, self.key


@dataclass(frozen=True)
class Entry:
    """A row of the ledger, column by column.

    sequence   1, 2, 3, …
    at         time in UTC, ISO 8601 with microseconds
    job, kind, key    together unique
    payload    canonical JSON
    previous   hash of the entry before; 64 zeros in the first
    hash       of this entry
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
        """The parsed payload."""
        return read_document(self.payload, f"the payload of entry {self.sequence}")

    @property
    def unique_key(self) -> tuple[str, str, str]:
        return self.job, self.kind, self.key

    def link(self) -> dict[str, Any]:
        """All fields, with the payload's digest instead of the payload."""
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
