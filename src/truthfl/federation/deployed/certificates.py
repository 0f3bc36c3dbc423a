"""TLS for a federation's server: a certificate authority that signs one server and is forgotten, and checks of both.

Participants need `ca.crt` alone. The authority's private key is never written down, so that nobody can sign another
server in its name; a new server means new files. Imports `errors` and `files`.
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

ROOT, SERVER, SERVER_KEY = "ca.crt", "server.crt", "server.key"
DAYS_VALID = 825  # the longest that all common TLS libraries accept
CLOCKS_DIFFER_BY = timedelta(days=1)
THIS_MACHINE = ("localhost", "127.0.0.1", "::1")  # the server's own processes talk to it
EVERY_ADDRESS = ("0.0.0.0", "::")
_PLAIN = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")


@dataclass(frozen=True)
class Certificates:
    """Where a server's certificate, its private key and the authority's certificate are."""

    root: Path
    server: Path
    server_key: Path


def certificates_in(folder: Path) -> Certificates:
    return Certificates(folder / ROOT, folder / SERVER, folder / SERVER_KEY)


def make_certificates(folder: Path, hosts: Iterable[str] = ()) -> Certificates:
    """New files for a server that goes by these names and addresses, and by those of its own machine."""
    names = [_general_name(host) for host in dict.fromkeys((*hosts, *THIS_MACHINE))]
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
    """The files in this folder, if a server can be reached by this host name or address with them today."""
    files = certificates_in(folder)
    server, *between = _read(files.server)
    roots = _read(files.root)
    for path, certificates in ((files.server, [server]), (files.root, roots)):
        _require_in_force(path, certificates)
    if not any(_signed(issuer, server) for issuer in (*between, *roots)):
        raise InputError(f"{files.server} was not signed by {files.root}; both must come from one truthfl keys server.")
    if server.public_key().public_bytes(*_PLAIN) != _read_public_half(files.server_key):
        raise InputError(f"{files.server_key} is not the key of {files.server}; they must be made together.")
    name = host_to_reach(host)
    if _general_name(name) not in _names_of(server):
        known = ", ".join(hosts_in(files.server)) or "no host at all"
        raise InputError(f"{files.server} is for {known}, not for {name}; truthfl keys server --host {name} makes one.")
    return files


def read_root(path: Path) -> Path:
    """The authority's certificate that a participant was given, if it can be used today."""
    _require_in_force(path, _read(path))
    return path


def host_to_reach(host: str) -> str:
    """How the server's own machine reaches it, when it listens at this host."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def valid_until(path: Path) -> datetime:
    """The last moment of the certificate in this file."""
    return _read(path)[0].not_valid_after_utc


def hosts_in(path: Path) -> list[str]:
    """The names and addresses that the server's certificate in this file is for."""
    return [str(name.value) for name in _names_of(_read(path)[0])]


def require_absent(*paths: Path) -> None:
    """Say so before anything is written, when one of these files is there already."""
    for path in paths:
        if path.exists():
            raise InputError(f"{path} exists already, and is not replaced; name another folder.")


def _names_of(certificate: x509.Certificate) -> list[x509.GeneralName]:
    try:
        return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _general_name(host: str) -> x509.GeneralName:
    if host in EVERY_ADDRESS:
        raise InputError(f"{host} means every address of a machine and is no name to reach it by; name that.")
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        labels = host.rstrip(".").split(".")
        if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels) or labels[-1].isdigit():
            raise InputError(
                f"{host!r} is no host name and no IP address, such as fl.example.org or 10.0.0.5."
            ) from None
        return x509.DNSName(host.rstrip(".").lower())


def _root_certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("truthfl certificate authority")
    usage = _usage(key_cert_sign=True, crl_sign=True)
    return (
        _unsigned(name, name, key)
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
        _unsigned(_name("truthfl server"), root.subject, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(root_identifier), critical=False)
        .sign(root_key, hashes.SHA384())
    )


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    today = datetime.now(UTC).replace(microsecond=0)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - CLOCKS_DIFFER_BY)
        .not_valid_after(today - CLOCKS_DIFFER_BY + timedelta(days=DAYS_VALID))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
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


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _signed(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
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


def _read_public_half(path: Path) -> bytes:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; truthfl keys server makes it.") from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError(f"{path} is no private key in PEM form without a password.") from None
    return key.public_key().public_bytes(*_PLAIN)


def _write(path: Path, content: bytes, *, private: bool = False) -> None:
    if not write_file(path, content, private=private, keep_existing=True):
        raise InputError(f"{path} exists already, and is not replaced; name another folder.")
