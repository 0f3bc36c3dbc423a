"""How a node proves its key to the server: it signs a number of the server's, for that server's certificate alone.

A server that a node also connects to cannot pass the signature on to another one, whose certificate is another. The
proof needs no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from truthfl.ledger.signing import PrivateKey, public_line, sign, signed_by

# Paths of the server. All requests are POST.
PREFIX = "/v1/fleet/truthfl/"
HELLO, NEXT, REPLY, LEAVE, ADMIT = (PREFIX + name for name in ("hello", "next", "reply", "leave", "admit"))
HEALTH = "/health"  # answered to everybody, also to GET
NUMBER_HEADER = "truthfl-number"  # of a message, in responses to NEXT
JSON, BYTES = "application/json", "application/octet-stream"


def fingerprint(certificate: bytes | None) -> str:
    """The hash of a certificate (DER) in hexadecimal; "" without TLS."""
    return "" if certificate is None else sha256(certificate).hexdigest()


def fingerprint_in(path: Path | None) -> str:
    """The fingerprint of the first certificate in this PEM file; "" without a file."""
    if path is None:
        return ""
    return fingerprint(x509.load_pem_x509_certificates(path.read_bytes())[0].public_bytes(Encoding.DER))


def signed_hello(key: PrivateKey, nonce: str, server: str) -> dict[str, str]:
    """The document by which a node proves its key.

    nonce   the server's number
    server  the fingerprint of its certificate
    """
    return {"public_key": public_line(key), "nonce": nonce, "signature": sign(key, _content(nonce, server))}


def proves_key(hello: Mapping[str, Any], server: str) -> bool:
    """Whether an untrusted document with a nonce is signed by the key that it names, for this server."""
    return signed_by(str(hello["public_key"]), _content(str(hello["nonce"]), server), str(hello["signature"]))


def _content(nonce: str, server: str) -> dict[str, str]:
    return {"kind": "hello", "nonce": nonce, "server": server}
