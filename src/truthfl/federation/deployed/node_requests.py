"""The server's side of nodes' connections, as an ASGI application that limits what strangers send and hold.

A node greets the server with its key and gets a token. With the token it asks for its next message and sends its
replies. A reply that is not expected, or is too long, is refused before it is read. A participant with an invitation is
admitted by its code. Other paths are not found.

A connection is closed if the head of a request is late or too long. The number of connections without a node's request
in progress is limited. Above the limit the oldest one is closed. Nodes reconnect when they need to.
"""

from __future__ import annotations

import asyncio
import json
import resource
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qs

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from truthfl.errors import InputError, TruthflError
from truthfl.federation.deployed.mailboxes import Mailboxes, NodeRegistry
from truthfl.federation.deployed.node_connection import (
    ADMIT,
    BYTES,
    HEALTH,
    HELLO,
    JSON,
    LEAVE,
    NEXT,
    NUMBER_HEADER,
    REPLY,
    proves_key,
)
from truthfl.flower_patches import message_bytes
from truthfl.ledger.signing import normal_public_line
from truthfl.texts import plain

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MOST_DOCUMENT_BYTES = 20_000
DOCUMENT_SECONDS = 10.0  # the time in which a document must arrive


class Refusal(Exception):  # noqa: N818
    """A response other than OK, with an explanation."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        self.status, self.sentence = status, sentence


async def until_disconnected(receive: Receive) -> None:
    """Wait until the other side closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(receive: Receive, longest: int) -> bytes:
    """A whole body; `Refusal` if it is longer than this number of bytes."""
    parts, length, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(HTTPStatus.BAD_REQUEST, "the connection was lost.")
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > longest:
            raise Refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {longest:,} bytes are not read.")
        more = message.get("more_body", False)
    return b"".join(parts)


async def read_short_body(receive: Receive) -> bytes:
    """A short body, which must arrive within a time limit."""
    try:
        async with asyncio.timeout(DOCUMENT_SECONDS):
            return await read_body(receive, MOST_DOCUMENT_BYTES)
    except TimeoutError:
        raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "your request took too long.") from None


async def read_document(receive: Receive) -> dict[str, Any]:
    """The JSON object in a short body."""
    try:
        document = json.loads(await read_short_body(receive))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Refusal(HTTPStatus.BAD_REQUEST, "this is not a JSON document.")
    return document


async def respond(
    send: Send, document: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK, *, closes: bool = False
) -> None:
    """Respond with JSON, and close the connection if asked to, or if the request did not arrive in time."""
    ends = [(b"connection", b"close")] if closes or status == HTTPStatus.REQUEST_TIMEOUT else []
    await _send(send, status, json.dumps(document).encode(), [(b"content-type", JSON.encode()), *ends])


async def respond_bytes(send: Send, content: bytes, number: int) -> None:
    """Respond with the message of this number."""
    headers = [(b"content-type", BYTES.encode()), (NUMBER_HEADER.encode(), str(number).encode())]
    await _send(send, HTTPStatus.OK, content, headers)


async def _send(send: Send, status: HTTPStatus, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": int(status), "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


def header_of(scope: Scope, name: bytes) -> str:
    """The value of a header that occurs once; "" otherwise."""
    found = [value for own, value in scope.get("headers", ()) if own == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def body_length(scope: Scope) -> int:
    """The length of a request's body; `Refusal` if the request does not give it."""
    length = header_of(scope, b"content-length")
    if not (length.isascii() and length.isdigit() and len(length) < 16):
        raise Refusal(HTTPStatus.LENGTH_REQUIRED, "say how long your request is.")
    return int(length)


def query_value(scope: Scope, name: str, otherwise: str) -> str:
    """A value in the query, cut off after 64 letters; `after` must be a number."""
    text = str(scope.get("query_string", b"").decode("latin-1"))
    value = parse_qs(text).get(name, [otherwise])[0][:64]
    if name == "after" and not (value.isascii() and value.isdigit()):
        raise Refusal(HTTPStatus.BAD_REQUEST, "after must be a number.")
    return value


def address_of(scope: Scope) -> str:
    """The address that sent a request."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


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

    most  the number of connections to keep without a node's request in progress
    """

    def __init__(self, most: int = MOST_IDLE) -> None:
        self.most = most
        self._idle: dict[Address, Closable] = {}
        self._at_work: dict[Address, Closable] = {}

    @property
    def at_work(self) -> frozenset[Address]:
        """The connections with a node's request in progress."""
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
        """Note that a node's request is in progress on this connection."""
        transport = self._idle.pop(address, None)
        if transport is not None:
            self._at_work[address] = transport

    def end_work(self, address: Address) -> None:
        """Note that this request is over."""
        transport = self._at_work.pop(address, None)
        if transport is not None:
            self.add(address, transport)


def allow_many_files() -> int:
    """Raise this process's limit of open files and connections as far as reasonable; return the limit."""
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
    """An event loop with a time limit for TLS handshakes; uvicorn has no option for it."""

    async def create_server(self, *arguments: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", HANDSHAKE_SECONDS)
        return await super().create_server(*arguments, **options)


def limited_protocol(connections: OpenConnections) -> type[asyncio.Protocol]:
    """Uvicorn's HTTP protocol with these limits.

    Uses its attributes `client` and `cycle` (of the request in progress). If it parses with httptools, which does not
    limit the length of heads, it also uses `on_body`.
    """

    base: Any = AutoHTTPProtocol
    counts_heads = hasattr(base, "on_body")

    class LimitedProtocol(base):  # type: ignore[misc]
        """A connection: the timer of its next head, and the bytes since the last head (of bodies and in total)."""

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


Admit = Callable[[Mapping[str, Any]], str]

WAIT_SECONDS = 20.0  # a request for the next message is answered after this time at the latest
MOST_DELIVERIES = 16  # at the same time, so that few encoded messages are in memory
REPLY_SECONDS, SLOWEST_BYTES = 30.0, 50_000  # time limit of a reply, plus a second per so much length in bytes
ROOM_SECONDS = 0.05  # between two checks for room for a reply
MOST_DROPPED_BYTES = 64_000  # of an unread reply; the connection of a longer one is closed
MOST_REQUESTS = 8  # of one node at the same time
NONCE_SECONDS, MOST_NONCES = 60.0, 10_000
UNKNOWN_KEY = "the operator's server does not know your key: send them your .pub file, or ask for an invitation."
CONNECTED_ALREADY = "somebody with your key is connected already; one computer at a time can be."
NO_INVITATIONS = "this server accepts no invitations."


@dataclass(eq=False)
class NodeRequests:
    """An ASGI application.

    fingerprint  of the server's certificate; "" without TLS
    note         called with an address and a reason when somebody is not admitted
    admit        called with an invitation's document; returns a sentence, or raises InputError
    reading      by message id: the time limit of its reply that is being read
    connections  the open ones; strangers' requests must not end nodes' requests
    """

    mailboxes: Mailboxes
    registry: NodeRegistry
    fingerprint: str = ""
    note: Callable[[str, str], None] = lambda *_: None
    admit: Admit | None = None
    tokens: dict[str, int] = field(default_factory=dict)  # node id by token
    token_of: dict[int, str] = field(default_factory=dict)
    nonces: dict[str, float] = field(default_factory=dict)  # creation time by nonce
    is_closing: bool = False
    connections: OpenConnections = field(default_factory=OpenConnections)
    reading: dict[str, asyncio.Timeout] = field(default_factory=dict)
    under_way: Counter[int] = field(default_factory=Counter)  # requests by node id
    deliveries: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_DELIVERIES))

    def close(self) -> None:
        """End all waiting requests."""
        self.is_closing = True
        self.mailboxes.wake_all()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        handle = {HELLO: self._hello, NEXT: self._next, REPLY: self._reply, LEAVE: self._leave, ADMIT: self._admit}
        path, method = scope.get("path", ""), scope.get("method")
        try:
            if path == HEALTH:
                await respond(send, {"status": "ok"})
            elif path not in handle or method != "POST":
                raise Refusal(HTTPStatus.NOT_FOUND, "this path does not exist.")
            else:
                await handle[path](scope, receive, send)
        except Refusal as refusal:
            await respond(send, {"error": refusal.sentence}, refusal.status)
        except TruthflError as error:  # from the ledger, when a participant is admitted
            await respond(send, {"error": plain(error)}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def _hello(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give a nonce, or a token to a node that has signed one."""
        document = await read_document(receive)
        if "nonce" not in document:
            await respond(send, {"nonce": self._new_nonce()})
            return
        if self.nonces.pop(str(document["nonce"]), float("-inf")) < time.monotonic() - NONCE_SECONDS:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "your greeting is too old.")
        try:
            key = normal_public_line(str(document["public_key"]))
            is_proved = proves_key({**document, "public_key": key}, self.fingerprint)
        except (InputError, KeyError) as error:
            raise Refusal(HTTPStatus.FORBIDDEN, "your greeting cannot be read.") from error
        address = address_of(scope)
        if not is_proved:
            self.note(address, "the greeting was not signed by the key that it names, for this server")
            raise Refusal(HTTPStatus.FORBIDDEN, "your greeting is not signed by your key, for this server.")
        node = await asyncio.get_running_loop().run_in_executor(None, self.registry.find, key)
        if node is None:
            self.note(address, f"a key that is not registered (…{key[-12:]})")
            raise Refusal(HTTPStatus.FORBIDDEN, UNKNOWN_KEY)
        if self.mailboxes.is_waiting(node.node_id):
            raise Refusal(HTTPStatus.CONFLICT, CONNECTED_ALREADY)
        self.tokens.pop(self.token_of.get(node.node_id, ""), None)
        token = secrets.token_hex(24)
        self.tokens[token] = node.node_id
        self.token_of[node.node_id] = token
        await respond(send, {"token": token, "node": str(node.node_id), "name": node.name})

    async def _next(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond with the node's first message after a number as soon as it exists."""
        with self._request_of_node(scope) as node:
            after = int(query_value(scope, "after", "0"))
            await read_short_body(receive)
            await self._deliver_next(node, after, receive, send)

    async def _deliver_next(self, node: int, after: int, receive: Receive, send: Send) -> None:
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        self.mailboxes.begin_waiting(node, wake)
        gone: asyncio.Future[Any] = asyncio.ensure_future(until_disconnected(receive))
        try:
            found = await self._wait_for_message(node, after, woken, gone)
            if gone.done():
                return
            if found is None:
                await respond(send, {}, HTTPStatus.OK)
                return
            number, message = found
            async with self.deliveries:
                content = message_bytes(message)
                self.mailboxes.delivered_bytes += len(content)
                await respond_bytes(send, content, number)
        finally:
            gone.cancel()
            self.mailboxes.end_waiting(node, wake)

    async def _wait_for_message(
        self, node: int, after: int, woken: asyncio.Event, gone: asyncio.Future[Any]
    ) -> tuple[int, Any] | None:
        deadline = time.monotonic() + WAIT_SECONDS
        while (found := self.mailboxes.next_after(node, after)) is None:
            woken.clear()
            if (found := self.mailboxes.next_after(node, after)) is not None:
                return found
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0 or self.is_closing:
                return None
            waiting: asyncio.Future[Any] = asyncio.ensure_future(woken.wait())
            await asyncio.wait((waiting, gone), timeout=seconds_left, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if gone.done():
                return None
        return found

    async def _reply(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a reply; respond with how long a reply to this message may be, 0 if none is expected (any more)."""
        with self._request_of_node(scope) as node:
            message_id, length = query_value(scope, "message", ""), body_length(scope)
            longest = self.mailboxes.most_bytes(node, message_id)
            if not 0 < length <= longest:
                closes = length > MOST_DROPPED_BYTES
                await respond(send, {"taken": False, "longest": longest}, HTTPStatus.OK, closes=closes)
                return
            content = await self._read_reply(receive, message_id, length)
            await respond(send, {"taken": self.mailboxes.put_reply(node, message_id, content), "longest": 0})

    async def _read_reply(self, receive: Receive, message_id: str, length: int) -> bytes:
        """The body of a reply, once there is room for it. A repeated reply ends the earlier one."""
        earlier = self.reading.get(message_id)
        if earlier is not None and not earlier.expired():
            earlier.reschedule(asyncio.get_running_loop().time())
        has_room, limit = False, asyncio.timeout(REPLY_SECONDS + length / SLOWEST_BYTES)
        try:
            async with limit:
                self.reading[message_id] = limit
                while not (has_room := self.mailboxes.make_room(length)):
                    await asyncio.sleep(ROOM_SECONDS)
                return await read_body(receive, length)
        except TimeoutError:
            raise Refusal(HTTPStatus.REQUEST_TIMEOUT, "your reply took too long.") from None
        finally:
            if has_room:
                self.mailboxes.give_room_back(length)
            if self.reading.get(message_id) is limit:
                del self.reading[message_id]

    async def _leave(self, scope: Scope, receive: Receive, send: Send) -> None:
        node = self._node(scope)
        await read_short_body(receive)
        self.tokens.pop(self.token_of.pop(node, ""), None)
        self.mailboxes.disconnect(node)
        await respond(send, {})

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        document = await read_document(receive)
        if self.admit is None:
            raise Refusal(HTTPStatus.FORBIDDEN, NO_INVITATIONS)
        try:
            sentence = await asyncio.get_running_loop().run_in_executor(None, self.admit, document)
        except InputError as error:
            self.note(address_of(scope), f"an invitation was refused: {plain(error)}")
            raise Refusal(HTTPStatus.FORBIDDEN, plain(error)) from None
        await respond(send, {"admitted": sentence})

    @contextmanager
    def _request_of_node(self, scope: Scope) -> Iterator[int]:
        """The node whose token a request has; the request is in progress in this context."""
        node, address = self._node(scope), scope.get("client")
        if self.under_way[node] >= MOST_REQUESTS:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many of your requests are in progress.")
        self.under_way[node] += 1
        if address is not None:
            self.connections.begin_work(address)
        try:
            yield node
        finally:
            self.under_way[node] -= 1
            if address is not None:
                self.connections.end_work(address)

    def _node(self, scope: Scope) -> int:
        """The node whose token a request has."""
        words = header_of(scope, b"authorization").split()
        node = self.tokens.get(words[1]) if len(words) == 2 and words[0] == "Bearer" else None
        if node is None or self.registry.of_id(node) is None:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "say hello first.")
        return node

    def _new_nonce(self) -> str:
        """A new number; if there are too many, the oldest is forgotten."""
        if len(self.nonces) >= MOST_NONCES:
            del self.nonces[next(iter(self.nonces))]
        nonce = secrets.token_hex(16)
        self.nonces[nonce] = time.monotonic()
        return nonce
