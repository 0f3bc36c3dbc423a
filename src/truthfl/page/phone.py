"""The participant's page on a phone: over TLS in the local network, for the first device that opens the link.

Certificate and private key are in one file, so they always belong together. The file is kept, so that a phone that
trusts the certificate does not ask again.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from truthfl.certificates import common_name, general_name, names_in, server_builder
from truthfl.errors import InputError
from truthfl.files import PRIVATE_FILE_MODE, write_file
from truthfl.page.access import AccessSecrets, LoginOutcome, OneTimeLogin
from truthfl.page.serving import BoundedListener, OpenPhonePage, listen, served

if TYPE_CHECKING:
    from starlette.types import ASGIApp


ELSEWHERE = ("192.0.2.1", 9)  # an address that is reserved for documentation: no machine has it


def phone_address(named: str | None) -> str:
    """The named address, or else the one in the local network; raise InputError if it cannot be used.

    An address that the whole internet can reach is used only if it was named.
    """
    if named is not None:
        return _require_fit(named)
    found = address_towards(ELSEWHERE)
    if found is None or ipaddress.IPv4Address(found).is_loopback:
        raise InputError("this machine seems to be in no network; connect it, or name its address: --phone-address.")
    if ipaddress.IPv4Address(found).is_global:
        raise InputError(
            f"this machine's address {found} can be reached from the internet, not from your network alone; "
            f"if you want that, say --phone-address {found}."
        )
    return found


def address_towards(other: tuple[str, int]) -> str | None:
    """The address from which this machine would send to another; None if it cannot.

    Connecting a UDP socket sends nothing; it only looks up the route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(other)
            return str(probe.getsockname()[0])
        except OSError:
            return None


def _require_fit(named: str) -> str:
    try:
        address = ipaddress.IPv4Address(named)
    except ValueError:
        raise InputError(f"phone-address is {named!r}; it must be an IPv4 address, such as 192.168.1.20.") from None
    if address.is_unspecified or address.is_multicast:
        raise InputError(f"phone-address is {named}, which is no address of one machine; name that of this one.")
    return str(address)


PHONE_CERTIFICATE = "phone.pem"
SHORTEST_REST = timedelta(days=1)  # a certificate that expires sooner is replaced


@dataclass(frozen=True)
class PhoneCertificate:
    """A file with a certificate and its private key.

    fingerprint  SHA-256 of the certificate, as browsers show it: 32 pairs of hexadecimal digits with colons
    is_new       whether it was just made, so that no phone knows it yet
    """

    path: Path
    fingerprint: str
    is_new: bool


def phone_certificate(home: Path, address: str) -> PhoneCertificate:
    """The certificate in the participant's folder for this address; a new one if there is no usable one."""
    path = home / PHONE_CERTIFICATE
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
    """The certificate in the file, if others cannot read its key and it is valid for this address today."""
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


@dataclass(frozen=True)
class PhoneAccess:
    """How a phone reaches the page.

    address  of this machine in the local network
    port     0 for any free one; browsers remember a certificate by address and port
    tell     called with the outcome for a device that opened the link, and the device's address
    """

    address: str
    port: int
    tell: Callable[[LoginOutcome, str], None]


@contextmanager
def open_phone_page(
    make_app: Callable[[AccessSecrets], ASGIApp], home: Path, phone: PhoneAccess
) -> Iterator[OpenPhonePage]:
    """Serve the application behind separate secrets until the context ends."""
    certificate = phone_certificate(home, phone.address)
    secrets = AccessSecrets(hosts=(phone.address,))
    access = replace(secrets, one_time=OneTimeLogin(secrets.token, phone.tell))
    with (
        listen(phone.port, phone.address, "--phone-port", BoundedListener) as listener,
        served(lambda: make_app(access), listener, "page for the phone", certificate.path) as ended,
    ):
        url = f"https://{phone.address}:{listener.getsockname()[1]}{access.root}?token={access.token}"
        yield OpenPhonePage(url, certificate.fingerprint, certificate.is_new, ended)
