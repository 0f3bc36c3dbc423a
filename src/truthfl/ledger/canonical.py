"""Canonical JSON: a document always gives the same bytes, for hashes and signatures. Imports `errors`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from truthfl.errors import InputError

Document = Mapping[str, Any]

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


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
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{what} is not valid JSON.") from None
    if not isinstance(value, dict):
        raise InputError(f"{what} is a {type(value).__name__}; it must be a JSON object.")
    return value
