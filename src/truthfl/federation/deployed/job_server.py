"""The operator's server for nodes: `NodeRequests` over HTTPS, in a thread of this process.

It uses certificates and registered keys. Without them it listens on the loopback interface only.
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from truthfl.certificates import Certificates, read_certificates, require_loopback
from truthfl.errors import ServiceError
from truthfl.federation.deployed.mailboxes import Mailboxes, MailboxGrid, NodeRegistry
from truthfl.federation.deployed.node_connection import fingerprint_in
from truthfl.federation.deployed.node_requests import (
    FILES_PER_IDLE,
    Admit,
    LimitedLoop,
    NodeRequests,
    allow_many_files,
    limited_protocol,
)

START_SECONDS, STOP_SECONDS = 30.0, 5.0
SECONDS_TO_CLOSE = 0.1  # the time that connections have to close after the server ends
KEEP_ALIVE_SECONDS = 75
BACKLOG = 1024
CONNECTION_BUFFER = 32 * 1024  # bytes that asyncio keeps for each TLS connection; its default is 256 KB
Note = Callable[[str, str], None]


@dataclass(frozen=True, eq=False)
class JobServer:
    """A listening server, and the grid through which a job talks to its nodes."""

    host: str
    port: int
    grid: MailboxGrid
    requests: NodeRequests

    @property
    def registry(self) -> NodeRegistry:
        return self.grid.registry


@contextmanager
def open_job_server(
    host: str,
    port: int,
    certificates: Path | None,
    public_keys: Mapping[str, str] | None = None,
    look_up: Callable[[str], str | None] = lambda _: None,
    *,
    note: Note = lambda *_: None,
    admit: Admit | None = None,
) -> Iterator[JobServer]:
    """Listen until the context ends.

    public_keys   by name: the participants who are admitted from the start
    look_up       as in `NodeRegistry`
    certificates  the folder that truthfl keys server wrote; None for the loopback interface without TLS
    note          called with an address and a reason when somebody is not admitted
    admit         as in `NodeRequests`
    """
    files = _files(host, certificates)
    mailboxes, registry = Mailboxes(), NodeRegistry(closed=files is not None, look_up=look_up)
    for name, line in (public_keys or {}).items():
        registry.register(line, name)
    requests = NodeRequests(mailboxes, registry, fingerprint_in(None if files is None else files.server), note, admit)
    requests.connections.most = min(requests.connections.most, allow_many_files() // FILES_PER_IDLE)
    grid = MailboxGrid(mailboxes, registry)
    with (
        _listener(host, port) as listener,
        _note_failed_handshakes(note),
        _small_connections(),
        _served(requests, listener, files),
    ):
        yield JobServer(host, listener.getsockname()[1], grid, requests)


def require_can_listen(host: str, port: int, certificates: Path | None) -> None:
    """Raise an error if `open_job_server` cannot listen there now."""
    _files(host, certificates)
    with _listener(host, port):
        pass


def _files(host: str, certificates: Path | None) -> Certificates | None:
    if certificates is not None:
        return read_certificates(certificates, host)
    require_loopback(host)
    return None


@contextmanager
def _served(requests: NodeRequests, listener: socket.socket, files: Certificates | None) -> Iterator[None]:
    server = uvicorn.Server(
        uvicorn.Config(
            requests,
            access_log=False,
            log_level=logging.CRITICAL,
            server_header=False,
            proxy_headers=False,
            loop="asyncio",
            http=limited_protocol(requests.connections),
            lifespan="off",
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            ssl_certfile=None if files is None else str(files.server),
            ssl_keyfile=None if files is None else str(files.server_key),
        )
    )
    ended = threading.Event()

    def serve() -> None:
        try:
            with asyncio.Runner(loop_factory=LimitedLoop) as runner:
                runner.run(_serve(server, listener))
        finally:
            ended.set()

    thread = threading.Thread(target=serve, name="truthfl job server", daemon=True)
    thread.start()
    try:
        _wait_until_started(server, ended)
        yield
    finally:
        requests.close()
        server.should_exit = True
        thread.join(STOP_SECONDS)


async def _watch(server: Any, transports: list[Any]) -> None:
    """Note the transports of connections that are open when the server must end."""
    while not server.should_exit:
        await asyncio.sleep(SECONDS_TO_CLOSE / 4)
    transports += [protocol.transport for protocol in server.server_state.connections]


async def _serve(server: Any, listener: socket.socket) -> None:
    """Serve; at the end let connections close properly, and abort those that do not."""
    transports: list[Any] = []
    watching = asyncio.ensure_future(_watch(server, transports))
    await server.serve(sockets=[listener])
    watching.cancel()
    await asyncio.sleep(SECONDS_TO_CLOSE)
    for transport in transports:
        transport.abort()
    await asyncio.sleep(0)


def _wait_until_started(server: Any, ended: threading.Event) -> None:
    for _ in range(int(START_SECONDS / 0.02)):
        if server.started:
            return
        if ended.wait(0.02):
            break
    raise ServiceError("the server for participants did not start.")


@contextmanager
def _listener(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket; IPPROTO_TCP is explicit because asyncio sets TCP_NODELAY only then."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except OSError as error:
            raise ServiceError(f"{host}:{port} cannot be listened at: {error.strerror}; name another port.") from None
        yield listener


@contextmanager
def _note_failed_handshakes(note: Note) -> Iterator[None]:
    """Note clients whose TLS handshake fails, which asyncio does not report.

    Replaces `SSLProtocol._on_handshake_complete` of Python's asyncio; without it, nothing is noted.
    """
    place, name = asyncio.sslproto.SSLProtocol, "_on_handshake_complete"
    original = getattr(place, name, None)
    if original is None:
        yield
        return

    def complete(protocol: Any, error: Any) -> None:
        if isinstance(error, ssl.SSLError):
            peer = protocol._transport.get_extra_info("peername") if protocol._transport is not None else None
            note(str(peer[0]) if peer else "unknown", _handshake_reason(error))
        original(protocol, error)

    setattr(place, name, complete)
    try:
        yield
    finally:
        setattr(place, name, original)


@contextmanager
def _small_connections() -> Iterator[None]:
    """Give TLS connections small buffers. A node has two connections.

    Replaces `SSLProtocol.max_size` of Python's asyncio; without it, each node takes half a megabyte of memory.
    """
    place, name = asyncio.sslproto.SSLProtocol, "max_size"
    original = getattr(place, name, None)
    if original is None:
        yield
        return
    setattr(place, name, CONNECTION_BUFFER)
    try:
        yield
    finally:
        setattr(place, name, original)


def _handshake_reason(error: ssl.SSLError) -> str:
    reason = str(error.reason or "")
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason:
        return "the other side does not trust this server's certificate; it needs your ca.crt"
    if "HTTP_REQUEST" in reason:
        return "the other side does not speak TLS; it needs your ca.crt"
    return "no TLS connection could be made"
