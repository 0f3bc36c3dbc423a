"""Flower's SuperLink behind a gate: participants may reach what participants need, this machine alone the rest.

One port serves all of Flower's interfaces, and those for submitting code and for running it ask nobody who they are.
Run as `python -m truthfl.federation.flower_patches.restricted_superlink` with the arguments of flower-
superlink. Looks at Flower alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

FOR_PARTICIPANTS = "/v1/fleet/"
FOR_EVERYBODY = "/health"


def may_pass(path: str, peer: str | None, here: str | None) -> bool:
    """Whether a request for this path, from that address to this one, is a participant's or comes from this machine."""
    if path.startswith(FOR_PARTICIPANTS) or path == FOR_EVERYBODY:
        return True
    return bool(peer) and (_is_loopback(str(peer)) or peer == here)


class Gate:
    """Answers 404 to whoever asks for what is not theirs."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or may_pass(
            scope.get("path", ""), _host(scope, "client"), _host(scope, "server")
        ):
            await self.app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


def main() -> None:
    """Flower's own command, with the gate as its outermost layer."""
    from flwr.superlink import extensions
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    others = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(Gate), *others())
    flower_superlink()


def _host(scope: Scope, side: str) -> str | None:
    address = scope.get(side)
    return str(address[0]) if address else None


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


if __name__ == "__main__":
    main()
