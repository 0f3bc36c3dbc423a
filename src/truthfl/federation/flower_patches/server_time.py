"""ASGI middleware by which a SuperLink tells its time, so that participants can compare their clocks. Imports nothing.

The header Date has whole seconds and is up to some seconds old on a busy server.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

TIME_HEADER = "truthfl-time"  # seconds since 1970, of responses to HEALTH_PATH
HEALTH_PATH = "/health"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class TellTime:
    """Adds the server's time to responses that say whether the server is up."""

    def __init__(self, app: Application) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_time(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                header = (TIME_HEADER.encode(), f"{time.time():.3f}".encode())
                message = {**message, "headers": [*message.get("headers", ()), header]}
            await send(message)

        is_asked = scope["type"] == "http" and scope.get("path") == HEALTH_PATH
        await self.app(scope, receive, send_with_time if is_asked else send)
