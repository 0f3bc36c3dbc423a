"""Canonical JSON: a document always gives the same bytes, for hashes and signatures."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from math import isfinite
from typing import Any

from truthfl.errors import InputError

Document = Mapping[str, Any]
ESCAPED = "\\u"  # begins a letter that JSON spells by its number
MOST_DEPTH = 50  # of values in each other, in a message
MOST_KEPT_DEPTH = 2 * MOST_DEPTH  # in a ledger's row or a file, which may hold a message's document

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


_decoder_of_finite = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def canonical_bytes(document: Document) -> bytes:
    """JSON with sorted keys and no spaces, in UTF-8; numbers as Python writes them, so that they read back exactly."""
    try:
        return _encoder.encode(document).encode("utf-8")
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        raise InputError(f"a document cannot be written down: {error}.") from None


def digest(document: Document) -> str:
    """SHA-256 of the canonical bytes, in hexadecimal."""
    return sha256(canonical_bytes(document)).hexdigest()


def read_document(text: str | bytes, what: str = "the document") -> dict[str, Any]:
    """A document from untrusted JSON; `what` names it in error messages."""
    return _read(json.loads, text, what, MOST_KEPT_DEPTH)


def read_writable_document(text: str) -> tuple[dict[str, Any], bytes]:
    """A document from untrusted JSON, if `canonical_bytes` can write it down; and the text in UTF-8."""
    document = _read(_decoder_of_finite.decode, text, "the document", MOST_DEPTH)
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(f"a document cannot be written down: {error}.") from None
    if ESCAPED in text:  # it may spell half of a surrogate pair
        canonical_bytes(document)
    return document, content


def _read(decode: Callable[[Any], Any], text: str | bytes, what: str, depth: int) -> dict[str, Any]:
    try:
        value = decode(text)
    except (ValueError, RecursionError):
        raise InputError(f"{what} is not valid JSON.") from None
    if not isinstance(value, dict):
        raise InputError(f"{what} is a {type(value).__name__}; it must be a JSON object.")
    if _is_deeper(value, depth):  # writing takes more of the stack than reading does, and both depend on the caller
        raise InputError(f"{what} has values more than {depth} deep in each other.")
    return value


def _is_deeper(value: dict[str, Any], depth: int) -> bool:
    """Whether dictionaries and lists are in each other more often than this."""
    level: list[Any] = [value]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True
