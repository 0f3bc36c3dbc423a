"""Canonical JSON, which gives a document always the same bytes, and commitments to secrets that are revealed later.

The server commits to the secret that draws the test samples. Clients commit to the models that they train alone. NumPy
is imported only where arrays are hashed, because receipts are listed without it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from math import isfinite
from typing import TYPE_CHECKING, Any

from truthfl.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Document = Mapping[str, Any]
ESCAPED = "\\u"  # begins a letter that JSON spells by its number
MOST_DEPTH = 50  # nesting depth of values in a message
MOST_KEPT_DEPTH = 2 * MOST_DEPTH  # of a ledger's row or a file, which may contain a message's document

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
    if ESCAPED in text:  # it may be half of a surrogate pair
        canonical_bytes(document)
    return document, content


def _read(decode: Callable[[Any], Any], text: str | bytes, what: str, depth: int) -> dict[str, Any]:
    try:
        value = decode(text)
    except (ValueError, RecursionError):
        raise InputError(f"{what} is not valid JSON.") from None
    if not isinstance(value, dict):
        raise InputError(f"{what} is a {type(value).__name__}; it must be a JSON object.")
    if _is_deeper(value, depth):  # writing needs more stack than reading, and both depend on the caller
        raise InputError(f"{what} has values more than {depth} deep in each other.")
    return value


def _is_deeper(value: dict[str, Any], depth: int) -> bool:
    """Whether dictionaries and lists are nested deeper than this."""
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


SECRET_BYTES = 32


def new_secret() -> str:
    """A random secret, in hexadecimal."""
    return secrets.token_hex(SECRET_BYTES)


def secret_from_seed(seed: int) -> str:
    """The same secret for the same seed, for repeatable jobs. The seed must be kept secret as well."""
    return sha256(f"truthfl test draw {seed}".encode()).hexdigest()


def test_set_digest(features: NDArray[np.uint8 | np.float32], labels: NDArray[np.int64]) -> str:
    """SHA-256 of the test set: the type of its features unless they are bytes, their shape, features, labels."""
    import numpy as np

    kind = "" if features.dtype == np.uint8 else features.dtype.str
    hasher = sha256(f"{kind}{features.shape!r}".encode())
    hasher.update(np.ascontiguousarray(features).tobytes())
    hasher.update(np.ascontiguousarray(labels, dtype="<i8").tobytes())
    return hasher.hexdigest()


def commitment(test_set: str, samples: int, secret: str) -> str:
    """The hash that is published before training; `test_set` is the test set's digest, `samples` the number drawn."""
    return digest({"test_set": test_set, "samples": samples, "secret": secret})


def draw_seed(secret: str) -> int:
    """The seed of the test draw ξ, derived from the secret."""
    return int.from_bytes(sha256(bytes.fromhex(secret)).digest()[:8], "big")


def audition_commitment(offer: str, salt: str, model: NDArray[np.float32]) -> str:
    """A client's commitment to the model trained alone: a hash of the offer's hash, the salt and the model."""
    import numpy as np

    hasher = sha256(bytes.fromhex(offer) + bytes.fromhex(salt))
    hasher.update(np.ascontiguousarray(model, dtype="<f4").tobytes())
    return hasher.hexdigest()
