"""Items to append, the entries they become, and an entry's hash.

An entry's hash covers its link: its fields, with the payload's digest instead of the payload. So a client can check the
hash chain without seeing the payloads about other clients. The digest is salted: without the entry's random salt, which
links do not have, nobody can find a payload by trying all likely ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, canonical_bytes, digest, read_document
from truthfl.ledger.entry_kinds import GENESIS_HASH, KINDS
from truthfl.ledger.row_keys import RowKey, sign_row

HASHED_FIELDS = ("sequence", "at", "job", "kind", "key", "payload", "previous")
LINK_FIELDS = (*HASHED_FIELDS, "hash")
MAX_NAME_LENGTH = 300
SALT_BYTES = 16


def link_hash(link: Mapping[str, Any]) -> str:
    """The hash of an entry, computed from its link."""
    return digest({name: link[name] for name in HASHED_FIELDS})


def new_salt() -> str:
    """A random salt for one entry, in hexadecimal."""
    return secrets.token_hex(SALT_BYTES)


def is_salt(text: str) -> bool:
    """Whether this is a salt as `new_salt` makes them."""
    return len(text) == 2 * SALT_BYTES and set(text) <= set("0123456789abcdef")


def payload_digest(payload: str, salt: str) -> str:
    """SHA-256 of the salt's bytes and the payload, in hexadecimal; bytes that are no text count as they are."""
    return sha256(bytes.fromhex(salt) + payload.encode("utf-8", "surrogateescape")).hexdigest()


def payload_text(payload: Document) -> str:
    """The payload as canonical JSON; an error if reading it back would give another document."""
    text = canonical_bytes(payload).decode()
    if canonical_bytes(read_document(text, "a payload")).decode() != text:
        raise InputError("a payload has keys that are not text; all its keys must be.")
    return text


def entry_after(head: Entry | None, item: CheckedItem, at: str, salt: str, key: RowKey | None = None) -> Entry:
    """The entry for this item that follows `head`; None for the first entry. `at` is the time.

    key  signs it; without one it is in the chain, and counts for nothing
    """
    sequence = 1 if head is None else head.sequence + 1
    previous = GENESIS_HASH if head is None else head.hash
    without_hash = Entry(sequence, at, item.job, item.kind, item.key, item.payload, previous, "", salt, "")
    own_hash = link_hash(without_hash.link())
    return replace(without_hash, hash=own_hash, signature="" if key is None else sign_row(key, own_hash))


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


class Conflict(InputError):  # noqa: N818 - a public name
    """The ledger has an entry with the same job, kind and key but another payload."""


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
    at         time in UTC, ISO 8601 with microseconds; not before that of the entry before
    job, kind, key    together unique
    payload    canonical JSON
    previous   hash of the entry before; 64 zeros in the first
    hash       of this entry
    salt       of the payload's digest
    signature  of the hash, by the row key of the job's operator
    """

    sequence: int
    at: str
    job: str
    kind: str
    key: str
    payload: str
    previous: str
    hash: str
    salt: str
    signature: str

    @cached_property
    def document(self) -> dict[str, Any]:
        """The parsed payload."""
        return read_document(self.payload, f"the payload of entry {self.sequence}")

    @property
    def unique_key(self) -> tuple[str, str, str]:
        return self.job, self.kind, self.key

    @property
    def is_hashed(self) -> bool:
        """Whether the hash is that of the other columns."""
        return is_salt(self.salt) and self.hash == link_hash(self.link())

    def link(self) -> dict[str, Any]:
        """The fields that others may see: with the payload's digest instead of the payload, and without the salt."""
        return {
            "sequence": self.sequence,
            "at": self.at,
            "job": self.job,
            "kind": self.kind,
            "key": self.key,
            "payload": payload_digest(self.payload, self.salt),
            "previous": self.previous,
            "hash": self.hash,
        }
