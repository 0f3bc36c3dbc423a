"""The certificate with which her page is served to her phone: signed by itself, and kept in her folder.

Certificate and private key are one file, so they always belong together. It is kept so that a phone that has once been
told to trust it need not be asked again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from truthfl.certificate_parts import common_name, general_name, names_in, server_builder
from truthfl.files import PRIVATE_FILE_MODE, write_file

FILE_NAME = "phone.pem"
SHORTEST_REST = timedelta(days=1)  # a certificate that expires sooner is made anew


@dataclass(frozen=True)
class PhoneCertificate:
    """A file with a certificate and its private key.

    fingerprint  SHA-256 of the certificate, as browsers show it: 32 pairs of hexadecimal digits with colons
    is_new       whether it was made just now, so that a phone does not know it yet
    """

    path: Path
    fingerprint: str
    is_new: bool


def phone_certificate(home: Path, address: str) -> PhoneCertificate:
    """The certificate in her folder for this address; a new one if there is none that can be used."""
    path = home / FILE_NAME
    kept = _kept(path, address)
    if kept is not None:
        return PhoneCertificate(path, _fingerprint(kept), False)
    key = ec.generate_private_key(ec.SECP384R1())
    name = common_name("truthfl page")
    made = server_builder(name, name, key, [general_name(address)]).sign(key, hashes.SHA384())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_file(path, private + made.public_bytes(Encoding.PEM), private=True)
    return PhoneCertificate(path, _fingerprint(made), True)


def _kept(path: Path, address: str) -> x509.Certificate | None:
    """The certificate in the file, if others could not read its key, and it is valid for this address today."""
    try:
        content = path.read_bytes()
        certificate = x509.load_pem_x509_certificate(content)
        key = load_pem_private_key(content, password=None)
        was_private = path.stat().st_mode & 0o777 & ~PRIVATE_FILE_MODE == 0
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm):
        return None
    now = datetime.now(UTC)
    in_force = certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - SHORTEST_REST
    fits = key.public_key() == certificate.public_key() and general_name(address) in names_in(certificate)
    return certificate if was_private and in_force and fits else None


def _fingerprint(certificate: x509.Certificate) -> str:
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()
