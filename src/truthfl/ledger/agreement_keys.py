"""Agreement keys: X25519 keys for one offer, from which two sides derive the same secret keys (HKDF with SHA-256).

The operator's public key is in the job's terms, a participant's in their signed acceptance, so identity keys vouch for
both. Private keys are files of one line in hexadecimal, for their owner's eyes only. From a participant's agreement key
follows a list key (Ed25519), which signs in each masked round who is missing.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from truthfl.errors import InputError
from truthfl.files import write_file

KEY_BYTES = 32
MOST_REMEMBERED = 8192  # public keys that were tried
_ANY_KEY = X25519PrivateKey.from_private_bytes(bytes(range(KEY_BYTES)))  # to try other keys on
AgreementKey = X25519PrivateKey
ListKey = Ed25519PrivateKey


def kept_agreement_key(path: Path) -> AgreementKey:
    """The private key in this file; a new one if there is no file."""
    if not path.exists():
        private = X25519PrivateKey.generate().private_bytes_raw().hex()
        write_file(path, f"{private}\n", private=True, keep_existing=True)
    return read_agreement_key(path)


def read_agreement_key(path: Path) -> AgreementKey:
    """The private key in this file; raise InputError if there is none."""
    try:
        return X25519PrivateKey.from_private_bytes(bytes.fromhex(path.read_text(encoding="ascii").strip()))
    except (OSError, ValueError):
        raise InputError(f"{path} holds no agreement key; without it the job's rounds cannot go on.") from None


def agreement_line(key: AgreementKey) -> str:
    """The public key in hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def is_agreement_line(line: object) -> bool:
    """Whether this is a public key in hexadecimal, and not one of the few with which all secrets are known."""
    return isinstance(line, str) and _is_key(line)


@lru_cache(maxsize=MOST_REMEMBERED)
def _is_key(line: str) -> bool:
    try:
        if bytes.fromhex(line).hex() != line:
            return False
        _ANY_KEY.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(line)))
    except ValueError:
        return False
    return True


def shared_secret(own: AgreementKey, other: str) -> bytes:
    """The secret that the owners of both keys can compute, and nobody else; `other` is a public key."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(other)))
    except ValueError:
        raise InputError("an agreement key is no public key of X25519.") from None


def derived_key(secret: bytes, *about: str) -> bytes:
    """A key of 32 bytes for one purpose; `about` says which, and where it is used."""
    info = "\0".join(about).encode()
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(secret)


def own_secret(key: AgreementKey, purpose: str) -> bytes:
    """A secret of 32 bytes that follows from a private agreement key alone."""
    return derived_key(key.private_bytes_raw(), "truthfl own", purpose)


def list_key(key: AgreementKey) -> ListKey:
    """The private list key that follows from a private agreement key."""
    return Ed25519PrivateKey.from_private_bytes(own_secret(key, "lists"))


def list_line(key: AgreementKey) -> str:
    """The public list key in hexadecimal."""
    return list_key(key).public_key().public_bytes_raw().hex()


def is_list_line(line: object) -> bool:
    """Whether this has the form of a public list key; one that is no key verifies nothing."""
    return isinstance(line, str) and len(line) == 2 * KEY_BYTES and set(line) <= set("0123456789abcdef")


@lru_cache(maxsize=MOST_REMEMBERED)
def list_signed_by(line: str, text: bytes, signature: str) -> bool:
    """Whether this is a signature of the text by the list key `line`, in hexadecimal."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(line)).verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True
