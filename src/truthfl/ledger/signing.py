"""Keys and signatures (ECDSA on P-384), and agreement keys, from which two sides derive one secret.

Identity keys are OpenSSH files; public ones are their one-line form. Signatures are deterministic (RFC 6979). Of the
two valid ones, (r, s) and (r, n - s), only the one with the smaller s is made and accepted. Verified signatures are
remembered, since many clients of one process check the same ones.

The operator's public agreement key is in the job's terms, a participant's is in their signed acceptance. So identity
keys vouch for both. Their private keys are files of one line in hexadecimal. A participant's agreement key determines a
list key (Ed25519), which signs the list of missing participants in each masked round.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from functools import lru_cache
from hashlib import sha384
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
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


KEY_BYTES = 32
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
    """Whether this is a public key in hexadecimal, and not one of the few keys that make all secrets public."""
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
    """Whether this has the form of a public list key; an invalid key verifies nothing."""
    return isinstance(line, str) and len(line) == 2 * KEY_BYTES and set(line) <= set("0123456789abcdef")


@lru_cache(maxsize=MOST_REMEMBERED)
def list_signed_by(line: str, text: bytes, signature: str) -> bool:
    """Whether this is a signature of the text by the list key `line`, in hexadecimal."""
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(line)).verify(bytes.fromhex(signature), text)
    except (InvalidSignature, ValueError):
        return False
    return True
