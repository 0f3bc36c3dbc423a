"""Signatures of the ledger's rows, by a key that follows from the operator's: Ed25519 in place of ECDSA on P-384.

A job of a thousand clients has ten thousand rows, and P-384 takes five times as long for each. The operator's key signs
the public row key once, in the row that opens a job. What is signed of a row is its hash, and so its place in the
chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from truthfl.ledger.agreement_keys import KEY_BYTES, derived_key
from truthfl.ledger.signing import PrivateKey, public_line, sign, signed_by

if TYPE_CHECKING:
    from truthfl.ledger.entry import Entry

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
    """The public row key, as it stands in the row that opens a job, with the signature of the operator's key."""
    line = row_line(row_key(key))
    return {"row_key": line, "row_key_signature": sign(key, _certificate(public_line(key), line))}


def certified_row_key(opening: Mapping[str, Any]) -> str | None:
    """The public row key in the document that opens a job; None unless the operator's key in it signed it."""
    operator, line, signature = (opening.get(name) for name in ("operator_key", "row_key", "row_key_signature"))
    if not (isinstance(operator, str) and isinstance(line, str) and isinstance(signature, str)):
        return None
    return line if signed_by(operator, _certificate(operator, line), signature) else None


def job_row_key(job_rows: Iterable[Entry], operator: str | None = None) -> str | None:
    """The public row key of a job: that in the first of these rows, of kind job, that is signed by it.

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
    """Whether a row's hash is that of its contents, and signed by this public row key."""
    signature, key = entry.signature, _public(line)
    if key is None or not isinstance(signature, str) or len(signature) != SIGNATURE_LENGTH:
        return False
    try:
        raw = bytes.fromhex(signature)
        if raw.hex() != signature or not entry.is_hashed:
            return False
        key.verify(raw, _content(entry.hash))
    except (InvalidSignature, ValueError, TypeError):  # the columns may hold anything
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
