"""What lets her browser in: three secrets, new each time. Looks nowhere."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Door:
    """The token in the address, the cookie's value that it is exchanged for, and what changes must bring."""

    token: str = field(default_factory=_secret, repr=False)
    session: str = field(default_factory=_secret, repr=False)
    csrf: str = field(default_factory=_secret, repr=False)
    hosts: tuple[str, ...] = LOOPBACK
