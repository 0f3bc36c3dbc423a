"""Public keys of Flower's registered nodes, converted between PEM and OpenSSH."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)

from truthfl.errors import InputError
from truthfl.ledger.signing import normal_public_line

if TYPE_CHECKING:
    from flwr.serverapp import Grid


def registrations(grid: Grid) -> dict[int, tuple[str, str]]:
    """By id of each online node: the name and the public key (one OpenSSH line) it is registered with."""
    return {node.node_id: (node.name, public_key_line(node.public_key)) for node in grid.get_nodes()}


def public_key_line(pem: bytes) -> str:
    """Convert a PEM public key to a normalized OpenSSH line; "" if it is not a key that truthfl makes."""
    try:
        key = load_pem_public_key(pem)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return ""
        return normal_public_line(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())
    except (ValueError, UnsupportedAlgorithm, InputError):
        return ""


def pem_of(line: str) -> bytes:
    """Convert an OpenSSH public key line to PEM."""
    return load_ssh_public_key(line.encode()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
