"""Keys and signatures: ECDSA on the curve P-384, as Flower's nodes use, so that a participant needs one key only.

Private keys are OpenSSH files, public keys their one-line form. Signatures are deterministic (RFC 6979). With (r, s)
the pair (r, n - s) would verify too, so that others could write another signature than the signer's; of the two, the
one with the smaller s is made and accepted. What was verified is remembered, since many clients of one process check
the same signatures.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from functools import lru_cache
from hashlib import sha384
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from truthfl.errors import InputError
from truthfl.files import keep_out_of_git, write_file
from truthfl.ledger.canonical import Document, canonical_bytes

PrivateKey = ec.EllipticCurvePrivateKey
GROUP_ORDER = int(  # n of P-384 (FIPS 186-4, D.1.2.4)
    "39402006196394479212279040100143613805079739270465446667946905279627659399113263569398956308152294913554433653942643"
)
_ALGORITHM = ec.ECDSA(hashes.SHA384(), deterministic_signing=True)
_OF_DIGEST = ec.ECDSA(Prehashed(hashes.SHA384()))
MOST_REMEMBERED = 8192  # verified signatures


def new_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def public_line(key: PrivateKey) -> str:
    """The public key as one line of text, as in a .pub file, without a comment."""
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def write_key(key: PrivateKey, path: Path, comment: str = "") -> None:
    """Write the private key to `path`, readable by its owner only, and the public key to `path`.pub.

    An existing key is not replaced: that is an error. Git leaves out the key's folder from then on.
    """
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    if not write_file(path, private, private=True, keep_existing=True):
        raise InputError(f"{path} exists already, and a key is not replaced; name another file.")
    write_file(Path(f"{path}.pub"), f"{public_line(key)} {comment}".strip() + "\n")
    keep_out_of_git(path.parent)


def read_key(path: Path) -> PrivateKey:
    """The private key in this file."""
    try:
        key = load_ssh_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError(
            f"{path} is no private key in OpenSSH form without a password; truthfl keys makes one."
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP384R1):
        raise InputError(f"{path} is a key of another kind; it must be ECDSA on P-384, as truthfl keys makes them.")
    return key


def read_public_line(path: Path) -> str:
    """The public key in this .pub file, without its comment."""
    try:
        line = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}.") from None
    return normal_public_line(line, str(path))


def normal_public_line(line: str, what: str = "the public key") -> str:
    """The same public key without comment, so that equal keys are equal strings; `what` names it in messages."""
    try:
        key = load_ssh_public_key(line.strip().encode())
    except (ValueError, UnsupportedAlgorithm):
        raise InputError(f"{what} is no public key; it must be the line of a .pub file.") from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP384R1):
        raise InputError(f"{what} is a key of another kind; it must be ECDSA on P-384.")
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def sign(key: PrivateKey, document: Document) -> str:
    """A signature of the document's canonical bytes, in base64."""
    return sign_bytes(key, canonical_bytes(document))


def sign_bytes(key: PrivateKey, content: bytes) -> str:
    """A signature of a document whose canonical bytes these are, in base64."""
    r, s = decode_dss_signature(key.sign(content, _ALGORITHM))
    return b64encode(encode_dss_signature(r, min(s, GROUP_ORDER - s))).decode()


def signed_by(public_key: str, document: Document, signature: str) -> bool:
    """Whether this is a valid signature of the document by this key.

    Another base64 spelling of a valid signature is rejected, so that no byte of a signed document can be changed.
    """
    try:
        content = canonical_bytes(document)
    except InputError:
        return False
    return bytes_signed_by(public_key, content, signature)


def bytes_signed_by(public_key: str, content: bytes, signature: str) -> bool:
    """`signed_by` of a document whose canonical bytes these are."""
    return _is_signature(public_key, sha384(content).digest(), signature)


@lru_cache(maxsize=MOST_REMEMBERED)
def _is_signature(public_key: str, content_digest: bytes, signature: str) -> bool:
    try:
        key = load_ssh_public_key(public_key.encode())
        raw = b64decode(signature, validate=True)
        if not isinstance(key, ec.EllipticCurvePublicKey) or b64encode(raw).decode() != signature:
            return False
        if 2 * decode_dss_signature(raw)[1] > GROUP_ORDER:
            return False
        key.verify(raw, content_digest, _OF_DIGEST)
    except (InvalidSignature, ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True
