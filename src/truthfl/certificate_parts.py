"""What all TLS certificates made here share: host names, validity, key usage.

Certificates of a federation's server are made by `federation.deployed.certificates`, that of a participant's page for
her phone by `page.phone_certificate`.
"""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from truthfl.errors import InputError

DAYS_VALID = 825  # the maximum that all common TLS libraries accept
CLOCK_TOLERANCE = timedelta(days=1)
WILDCARD_ADDRESSES = ("0.0.0.0", "::")
_HOST_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")


def general_name(host: str) -> x509.GeneralName:
    """A host name or address as certificates have it; raise InputError if it is neither."""
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
    """The fields of every certificate: whose it is, who signs it, from when to when it is valid."""
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
