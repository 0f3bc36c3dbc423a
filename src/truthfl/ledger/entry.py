"""Entries of the ledger: items to append, the hash chain over them, their signatures, and the check of all three.

An entry's hash covers its link: its fields, with the payload's digest instead of the payload. So a client can check the
chain without seeing payloads about others. The digest uses the entry's random salt, which links do not have. Without
the salt, nobody can find a payload by trying all likely ones.

A row's signature covers its hash, and so its place in the chain. The operator's key (P-384) signs the public row key
once, in the row that opens a job. The row key (Ed25519) is five times as fast.

Any changed byte is detected. Only clients' receipts and anchors (`ledger.backup`) show that the last entries were
removed, or that the chain was rewritten from some entry on.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from truthfl.errors import InputError
from truthfl.ledger.canonical import Document, canonical_bytes, digest, read_document
from truthfl.ledger.signing import KEY_BYTES, PrivateKey, derived_key, public_line, sign, signed_by

KINDS = (
    "job",
    "command",
    "admission",
    "enrolment",
    "plan",
    "offer",
    "answer",
    "commitment",
    "hold",
    "audition",
    "start",
    "round",
    "rejection",
    "ended",
    "final",
    "test",
    "settlement",
    "receipt",
    "acknowledgement",
    "payment",
)
GENESIS_HASH = "0" * 64  # `previous` of the first row


RowKey = Ed25519PrivateKey
PURPOSE = "truthfl rows"
SIGNATURE_LENGTH = 128  # hexadecimal digits


def row_key(key: PrivateKey) -> RowKey:
    """The private row key that follows from the operator's key."""
    secret = key.private_numbers().private_value.to_bytes((key.curve.key_size + 7) // 8, "big")
    return Ed25519PrivateKey.from_private_bytes(derived_key(secret, PURPOSE))


def row_line(key: RowKey) -> str:
    """The public row key in hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def row_key_fields(key: PrivateKey) -> dict[str, str]:
    """The public row key with the signature of the operator's key, as in the row that opens a job."""
    line = row_line(row_key(key))
    return {"row_key": line, "row_key_signature": sign(key, _certificate(public_line(key), line))}


def certified_row_key(opening: Mapping[str, Any]) -> str | None:
    """The public row key in the document that opens a job; None unless the operator's key in it signed it."""
    operator, line, signature = (opening.get(name) for name in ("operator_key", "row_key", "row_key_signature"))
    if not (isinstance(operator, str) and isinstance(line, str) and isinstance(signature, str)):
        return None
    return line if signed_by(operator, _certificate(operator, line), signature) else None


def job_row_key(job_rows: Iterable[Entry], operator: str | None = None) -> str | None:
    """The public row key of a job, from the first of these rows of kind job that is signed by it.

    operator  the public key that the row must name; None for any
    """
    for entry in job_rows:
        try:
            opening = entry.document
        except ValueError:
            continue
        line = certified_row_key(opening)
        if line is not None and operator in (None, opening["operator_key"]) and is_row_signed(line, entry):
            return line
    return None


def sign_row(key: RowKey, row_hash: str) -> str:
    """The signature of a row with this hash, in hexadecimal."""
    return key.sign(_content(row_hash)).hex()


def is_row_signed(line: str, entry: Entry) -> bool:
    """Whether a row's hash matches its contents and is signed by this public row key."""
    signature, key = entry.signature, _public(line)
    if key is None or not isinstance(signature, str) or len(signature) != SIGNATURE_LENGTH:
        return False
    try:
        raw = bytes.fromhex(signature)
        if raw.hex() != signature or not entry.is_hashed:
            return False
        key.verify(raw, _content(entry.hash))
    except (InvalidSignature, ValueError, TypeError):  # the columns may contain anything
        return False
    return True


@lru_cache(maxsize=64)
def _public(line: str) -> Ed25519PublicKey | None:
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(line)) if len(line) == 2 * KEY_BYTES else None
    except ValueError:
        return None


def _certificate(operator: str, line: str) -> dict[str, str]:
    return {"kind": "row key", "operator_key": operator, "row_key": line}


def _content(row_hash: str) -> bytes:
    return f"{PURPOSE}\0{row_hash}".encode()


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
    """Whether this has the form of a salt from `new_salt`."""
    return len(text) == 2 * SALT_BYTES and set(text) <= set("0123456789abcdef")


def payload_digest(payload: str, salt: str) -> str:
    """SHA-256 of the salt's bytes and the payload, in hexadecimal; bytes that are not text count as they are."""
    return sha256(bytes.fromhex(salt) + payload.encode("utf-8", "surrogateescape")).hexdigest()


def payload_text(payload: Document) -> str:
    """The payload as canonical JSON; an error if reading it back would give another document."""
    text = canonical_bytes(payload).decode()
    if canonical_bytes(read_document(text, "a payload")).decode() != text:
        raise InputError("a payload has keys that are not text; all its keys must be.")
    return text


def entry_after(head: Entry | None, item: CheckedItem, at: str, salt: str, key: RowKey | None = None) -> Entry:
    """The entry for this item that follows `head`; None for the first entry. `at` is the time.

    key  signs it; an unsigned entry is in the chain but does not count
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
    at         time in UTC, ISO 8601 with microseconds; not before the previous entry's
    job, kind, key    together unique
    payload    canonical JSON
    previous   hash of the previous entry; 64 zeros in the first
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
        """Whether the hash matches the other columns."""
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
    """Fault of an entry's time, given the previous entry's time."""
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
