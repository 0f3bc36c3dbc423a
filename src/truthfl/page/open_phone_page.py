"""Serve the participant's page to her phone: in the local network, by TLS, to the first device that opens the link."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from truthfl.page.access_secrets import AccessSecrets
from truthfl.page.bounded_listener import BoundedListener
from truthfl.page.one_time_login import LoginOutcome, OneTimeLogin
from truthfl.page.phone_certificate import phone_certificate
from truthfl.page.serving import OpenPhonePage, listen, served

if TYPE_CHECKING:
    from starlette.types import ASGIApp


@dataclass(frozen=True)
class PhoneAccess:
    """How a phone reaches the page.

    address  of this machine in the local network
    port     0 for any free one; browsers remember a certificate by address and port
    tell     is called with what became of a device that opened the link, and its address
    """

    address: str
    port: int
    tell: Callable[[LoginOutcome, str], None]


@contextmanager
def open_phone_page(
    make_app: Callable[[AccessSecrets], ASGIApp], home: Path, phone: PhoneAccess
) -> Iterator[OpenPhonePage]:
    """Serve the application behind secrets of its own until the context ends."""
    certificate = phone_certificate(home, phone.address)
    secrets = AccessSecrets(hosts=(phone.address,))
    access = replace(secrets, one_time=OneTimeLogin(secrets.token, phone.tell))
    with (
        listen(phone.port, phone.address, "--phone-port", BoundedListener) as listener,
        served(lambda: make_app(access), listener, "page for the phone", certificate.path) as ended,
    ):
        url = f"https://{phone.address}:{listener.getsockname()[1]}{access.root}?token={access.token}"
        yield OpenPhonePage(url, certificate.fingerprint, certificate.is_new, ended)
