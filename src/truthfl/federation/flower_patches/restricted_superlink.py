"""Flower's SuperLink with access control: other machines may use only the paths that participants need.

Flower serves all of its APIs on one port, and those for submitting and running code need no authentication. Run as
`python -m truthfl.federation.flower_patches.restricted_superlink` with the arguments of flower-superlink.
Imports Flower and Starlette.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

PARTICIPANT_PATHS = "/v1/fleet/"
HEALTH_PATH = "/health"


def is_allowed(path: str, client_host: str | None, server_host: str | None) -> bool:
    """Whether a request for this path is allowed: the path is for participants, or the client is on this machine."""
    if path.startswith(PARTICIPANT_PATHS) or path == HEALTH_PATH:
        return True
    return bool(client_host) and (_is_loopback(str(client_host)) or client_host == server_host)


class AccessControl:
    """ASGI middleware that responds 404 to requests that are not allowed."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or is_allowed(
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
    """Run flower-superlink with `AccessControl` as the outermost middleware."""
    from flwr.superlink import extensions
    from flwr.superlink.cli import flower_superlink
    from starlette.middleware import Middleware

    get_middleware = extensions.get_middleware
    extensions.get_middleware = lambda: (Middleware(AccessControl), *get_middleware())
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
