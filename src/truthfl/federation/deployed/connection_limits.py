"""Limits on the server's connections, so that strangers who hold many of them do not keep nodes out.

A connection is closed if the head of a request does not come in time, or is too long. Of connections on which no node's
request is under way, only so many are kept: the oldest is closed for a new one. Nodes open theirs again when they need
it.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import Any, Protocol

HEAD_SECONDS = 10.0  # from a connection, or the first byte of a later request, to the end of the request's head
HANDSHAKE_SECONDS = 10.0
MOST_HEAD_BYTES = 65_536
MOST_IDLE, FILES_PER_IDLE = 4000, 4
MOST_FILES = 65_536
Address = tuple[str, int]


class Closable(Protocol):
    """A transport."""

    def abort(self) -> None: ...


class OpenConnections:
    """The connections that are open. They are noted in one thread.

    most  so many on which no node's request is under way are kept
    """

    def __init__(self, most: int = MOST_IDLE) -> None:
        self.most = most
        self._idle: dict[Address, Closable] = {}
        self._at_work: dict[Address, Closable] = {}

    @property
    def at_work(self) -> frozenset[Address]:
        """Whose connections have a node's request under way."""
        return frozenset(self._at_work)

    def add(self, address: Address, transport: Closable) -> None:
        """Note a new connection, and close the oldest if there are too many."""
        while self._idle and len(self._idle) >= self.most:
            self._idle.pop(next(iter(self._idle))).abort()
        self._idle[address] = transport

    def remove(self, address: Address) -> None:
        """Note that a connection is closed."""
        self._idle.pop(address, None)
        self._at_work.pop(address, None)

    def begin_work(self, address: Address) -> None:
        """Note that a node's request is under way on this connection."""
        transport = self._idle.pop(address, None)
        if transport is not None:
            self._at_work[address] = transport

    def end_work(self, address: Address) -> None:
        """Note that it is over."""
        transport = self._at_work.pop(address, None)
        if transport is not None:
            self.add(address, transport)


def allow_many_files() -> int:
    """Let this process have as many files and connections as the system allows, within reason; return how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MOST_FILES if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


class LimitedLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers give up on TLS handshakes after a while; uvicorn has no option for it."""

    async def create_server(self, *arguments: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", HANDSHAKE_SECONDS)
        return await super().create_server(*arguments, **options)


def limited_protocol(connections: OpenConnections) -> type[asyncio.Protocol]:
    """Uvicorn's HTTP protocol with these limits.

    Uses its attributes `client`, `cycle` (of the request under way) and, where it parses with httptools, which does not
    limit the length of heads, `on_body`.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    base: Any = AutoHTTPProtocol
    counts_heads = hasattr(base, "on_body")

    class LimitedProtocol(base):  # type: ignore[misc]
        """A connection: the timer of its next head, and the bytes since its last one, of bodies and of all."""

        timer: asyncio.TimerHandle | None = None
        body_bytes = all_bytes = 0

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            connections.add(self.client, transport)
            self._start_timer(transport.abort)

        def data_received(self, data: bytes) -> None:
            earlier = self.cycle
            super().data_received(data)
            if self.cycle is not earlier:
                self.all_bytes = self.body_bytes = 0
            else:
                self.all_bytes += len(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_timer()
            elif self.timer is None:
                self._start_timer(self.transport.abort)
            if counts_heads and self.all_bytes - self.body_bytes > MOST_HEAD_BYTES:
                self.transport.abort()

        def on_body(self, body: bytes) -> None:
            self.body_bytes += len(body)
            super().on_body(body)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            connections.remove(self.client)
            super().connection_lost(exc)

        def _start_timer(self, abort: Callable[[], None]) -> None:
            self.timer = self.loop.call_later(HEAD_SECONDS, abort)

        def _stop_timer(self) -> None:
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    limited: type[asyncio.Protocol] = LimitedProtocol
    return limited
