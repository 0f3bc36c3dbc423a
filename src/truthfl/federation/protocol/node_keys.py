"""Whose node is whose: the keys behind Flower's node numbers. Looks at `ledger.signing`."""

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
    """The nodes that are online, each with the name and the public key (one line of text) it is registered with."""
    return {node.node_id: (node.name, public_key_line(node.public_key)) for node in grid.get_nodes()}


def public_key_line(pem: bytes) -> str:
    """The key that Flower keeps in PEM form, in the one form that we compare by; "" if it is none of ours."""
    try:
        key = load_pem_public_key(pem)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return ""
        return normal_public_line(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())
    except (ValueError, UnsupportedAlgorithm, InputError):
        return ""


def pem_of(line: str) -> bytes:
    """A public key's line in the form that Flower keeps."""
    return load_ssh_public_key(line.encode()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
