"""What lets her browser in: four secrets, new each time. Looks nowhere."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Door:
    """The path of all addresses, the token in the first, the cookie's value it is exchanged for, what changes bring.

    A browser sends a machine's cookies to all of its ports, but not to other paths: without the path, whoever serves
    another page on this machine could be sent the cookie.
    """

    path: str = field(default_factory=lambda: secrets.token_urlsafe(12), repr=False)
    token: str = field(default_factory=_secret, repr=False)
    session: str = field(default_factory=_secret, repr=False)
    csrf: str = field(default_factory=_secret, repr=False)
    hosts: tuple[str, ...] = LOOPBACK

    @property
    def root(self) -> str:
        return f"/{self.path}/"
