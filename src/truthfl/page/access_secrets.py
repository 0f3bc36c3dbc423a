"""Random secrets that protect the page: URL prefix, login token, session cookie, CSRF token."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from truthfl.page.one_time_login import OneTimeLogin

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class AccessSecrets:
    """New secrets for each start of the page.

    path      prefix of all URLs. A browser sends a cookie to all ports of a host, but only below the cookie's path:
              without the prefix, another server on this machine could receive it
    token     in the first URL; exchanged for the session cookie
    session   value of the session cookie
    csrf      value of the header that POST requests must have
    hosts     accepted names of this machine
    one_time  decides about the token if it lets in one device only; None if it can be used again
    """

    path: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)
    token: str = field(default_factory=_secret, repr=False)
    session: str = field(default_factory=_secret, repr=False)
    csrf: str = field(default_factory=_secret, repr=False)
    hosts: tuple[str, ...] = LOOPBACK
    one_time: OneTimeLogin | None = None

    @property
    def root(self) -> str:
        return f"/{self.path}/"
