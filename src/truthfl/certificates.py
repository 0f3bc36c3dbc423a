"""TLS certificates: a certificate authority, a server that it signs, and the common parts of all certificates.

Participants need only `ca.crt`. The authority's private key is not kept, so it cannot sign other servers; a new server
needs new files.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from truthfl.errors import InputError
from truthfl.files import write_file

DAYS_VALID = 825  # the maximum that all common TLS libraries accept
CLOCK_TOLERANCE = timedelta(days=1)
WILDCARD_ADDRESSES = ("0.0.0.0", "::")
_HOST_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")


def general_name(host: str) -> x509.GeneralName:
    """A host name or address in the form of certificates; raise InputError if it is neither."""
    if host in WILDCARD_ADDRESSES:
        raise InputError(f"{host} means every address of a machine and is no name to reach it by; name that.")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        labels = host.rstrip(".").split(".")
        if len(host) > 253 or not all(_HOST_LABEL.fullmatch(label) for label in labels) or labels[-1].isdigit():
            raise InputError(
                f"{host!r} is no host name and no IP address, such as fl.example.org or 10.0.0.5."
            ) from None
        return x509.DNSName(host.rstrip(".").lower())


def server_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, names: list[x509.GeneralName]
) -> x509.CertificateBuilder:
    """The fields of a server's certificate, valid for these names; the issuer signs it."""
    return (
        certificate_builder(subject, issuer, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )


def names_in(certificate: x509.Certificate) -> list[x509.GeneralName]:
    """The hosts that a certificate is for."""
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def certificate_builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    """The fields of every certificate: owner, issuer, and validity."""
    today = datetime.now(UTC).replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - CLOCK_TOLERANCE)
        .not_valid_after(today - CLOCK_TOLERANCE + timedelta(days=DAYS_VALID))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def key_usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    """What a certificate's key may be used for."""
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


ROOT, SERVER, SERVER_KEY = "ca.crt", "server.crt", "server.key"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")  # the server's own processes connect to these
_PUBLIC_KEY_FORMAT = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


@dataclass(frozen=True)
class Certificates:
    """The paths of the authority's certificate, the server's certificate and the server's private key."""

    root: Path
    server: Path
    server_key: Path


def certificates_in(folder: Path) -> Certificates:
    return Certificates(folder / ROOT, folder / SERVER, folder / SERVER_KEY)


def make_certificates(folder: Path, hosts: Iterable[str] = ()) -> Certificates:
    """Write new files for a server with these host names and addresses, and with the loopback ones."""
    names = [general_name(host) for host in dict.fromkeys((*hosts, *LOOPBACK_HOSTS))]
    root_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    root = _root_certificate(root_key)
    server = _server_certificate(server_key, names, root, root_key)
    files = certificates_in(folder)
    require_absent(files.root, files.server, files.server_key)
    private = server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write(files.server_key, private, private=True)
    _write(files.server, server.public_bytes(Encoding.PEM))
    _write(files.root, root.public_bytes(Encoding.PEM))
    return files


def read_certificates(folder: Path, host: str) -> Certificates:
    """Return the files in this folder; raise InputError unless they are valid today for a server at this host."""
    files = certificates_in(folder)
    server, *intermediates = _read(files.server)
    roots = _read(files.root)
    for path, certificates in ((files.server, [server]), (files.root, roots)):
        _require_in_force(path, certificates)
    if not any(_is_signed_by(issuer, server) for issuer in (*intermediates, *roots)):
        raise InputError(f"{files.server} was not signed by {files.root}; both must come from one truthfl keys server.")
    if server.public_key().public_bytes(*_PUBLIC_KEY_FORMAT) != _read_public_key(files.server_key):
        raise InputError(f"{files.server_key} is not the key of {files.server}; they must be made together.")
    name = host_to_reach(host)
    if general_name(name) not in names_in(server):
        hosts = ", ".join(hosts_in(files.server)) or "no host at all"
        raise InputError(f"{files.server} is for {hosts}, not for {name}; truthfl keys server --host {name} makes one.")
    return files


def read_root(path: Path) -> Path:
    """Return this path of an authority's certificate; raise InputError unless it is valid today."""
    _require_in_force(path, _read(path))
    return path


def host_to_reach(host: str) -> str:
    """The address at which the server's own machine reaches a server that listens at this host."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def valid_until(path: Path) -> datetime:
    """The end of validity of the certificate in this file."""
    return _read(path)[0].not_valid_after_utc


def hosts_in(path: Path) -> list[str]:
    """The host names and addresses in the server's certificate in this file."""
    return [str(name.value) for name in names_in(_read(path)[0])]


def require_absent(*paths: Path) -> None:
    """Raise InputError if one of these files exists; called before anything is written."""
    for path in paths:
        if path.exists():
            raise InputError(f"{path} exists already, and is not replaced; name another folder.")


def _root_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = common_name("truthfl certificate authority")
    usage = key_usage(key_cert_sign=True, crl_sign=True)
    return (
        certificate_builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA384())
    )


def _server_certificate(
    key: ec.EllipticCurvePrivateKey,
    names: list[x509.GeneralName],
    root: x509.Certificate,
    root_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    root_identifier = root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        server_builder(common_name("truthfl server"), root.subject, key, names)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(root_identifier), critical=False)
        .sign(root_key, hashes.SHA384())
    )


def _is_signed_by(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _require_in_force(path: Path, certificates: list[x509.Certificate]) -> None:
    now = datetime.now(UTC)
    for first, last in ((each.not_valid_before_utc, each.not_valid_after_utc) for each in certificates):
        if now > last:
            raise InputError(f"{path} was valid until {last:%Y-%m-%d}; truthfl keys server makes a new one.")
        if now < first:
            raise InputError(
                f"{path} is valid from {first:%Y-%m-%d %H:%M} UTC on, and this clock shows {now:%Y-%m-%d}."
            )


def _read(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; truthfl keys server makes it.") from None
    except ValueError:
        raise InputError(f"{path} is no certificate in PEM form; truthfl keys server makes one.") from None


def _read_public_key(path: Path) -> bytes:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; truthfl keys server makes it.") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError(f"{path} is no private key in PEM form without a password.") from None
    return key.public_key().public_bytes(*_PUBLIC_KEY_FORMAT)


def _write(path: Path, content: bytes, *, private: bool = False) -> None:
    if not write_file(path, content, private=private, keep_existing=True):
        raise InputError(f"{path} exists already, and is not replaced; name another folder.")


def require_loopback(host: str) -> None:
    """Raise InputError unless only this machine can reach this host."""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local:
        raise InputError(f"{host} can be reached by others, so it needs TLS; truthfl keys server makes certificates.")
