"""`NodeRequests`: the server's side of nodes' connections, as an ASGI application.

A node says hello with its key and gets a token; with it, it asks for its next message, which is answered when there is
one, and sends its replies. Somebody with an invitation is admitted by its code. Other paths are not found. Imports
`mailboxes`, `node_hello`, `node_registry`, `flower_patches.message_bytes`, `ledger.signing` and `texts`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from truthfl.errors import InputError, TruthflError
from truthfl.federation.deployed.mailboxes import Mailboxes
from truthfl.federation.deployed.node_hello import (
    ADMIT,
    BYTES,
    HELLO,
    JSON,
    LEAVE,
    NEXT,
    NUMBER_HEADER,
    REPLY,
    proves_key,
)
from truthfl.federation.deployed.node_registry import NodeRegistry
from truthfl.federation.flower_patches.message_bytes import message_bytes
from truthfl.ledger.signing import normal_public_line
from truthfl.texts import plain

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Admit = Callable[[Mapping[str, Any]], str]

HEALTH = "/health"
WAIT_SECONDS = 20.0  # a request for the next message is answered after this time at the latest
MOST_DELIVERIES = 16  # at the same time, so that few messages are in memory as bytes
MOST_DOCUMENT_BYTES = 20_000
MOST_REPLY_BYTES = 16_000_000  # unless a larger model was announced
NONCE_SECONDS, MOST_NONCES = 60.0, 10_000
UNKNOWN_KEY = "the operator's server does not know your key: send her your .pub file, or ask for an invitation."
CONNECTED_ALREADY = "somebody with your key is connected already; one computer at a time can be."
NO_INVITATIONS = "this server takes no invitations."


class Refusal(Exception):  # noqa: N818
    """A response other than OK, with a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        self.status, self.sentence = status, sentence


@dataclass(eq=False)
class NodeRequests:
    """An ASGI application.

    fingerprint  of the server's certificate; "" without TLS
    note         called with an address and a reason when somebody is not let in
    admit        called with an invitation's document; returns a sentence, or raises InputError
    reply_bytes  the longest reply that is read
    """

    mailboxes: Mailboxes
    registry: NodeRegistry
    fingerprint: str = ""
    note: Callable[[str, str], None] = lambda *_: None
    admit: Admit | None = None
    reply_bytes: int = MOST_REPLY_BYTES
    tokens: dict[str, int] = field(default_factory=dict)  # node id by token
    token_of: dict[int, str] = field(default_factory=dict)
    nonces: dict[str, float] = field(default_factory=dict)  # time of making by nonce
    is_closing: bool = False
    deliveries: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_DELIVERIES))

    def close(self) -> None:
        """Let no request wait any more."""
        self.is_closing = True
        self.mailboxes.wake_all()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        handle = {HELLO: self._hello, NEXT: self._next, REPLY: self._reply, LEAVE: self._leave, ADMIT: self._admit}
        path, method = scope.get("path", ""), scope.get("method")
        try:
            if path == HEALTH:
                await _respond(send, {"status": "ok"})
            elif path not in handle or method != "POST":
                raise Refusal(HTTPStatus.NOT_FOUND, "there is nothing here.")
            else:
                await handle[path](scope, receive, send)
        except Refusal as refusal:
            await _respond(send, {"error": refusal.sentence}, refusal.status)
        except TruthflError as error:  # of the ledger, when somebody is admitted
            await _respond(send, {"error": plain(error)}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def _hello(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Give a nonce to who has none, and a token to who has signed one."""
        document = await _document(receive)
        if "nonce" not in document:
            await _respond(send, {"nonce": self._new_nonce()})
            return
        if self.nonces.pop(str(document["nonce"]), 0.0) < time.monotonic() - NONCE_SECONDS:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "your greeting is too old.")
        try:
            key = normal_public_line(str(document["public_key"]))
            is_proved = proves_key({**document, "public_key": key}, self.fingerprint)
        except (InputError, KeyError) as error:
            raise Refusal(HTTPStatus.FORBIDDEN, "your greeting cannot be read.") from error
        address = _address(scope)
        if not is_proved:
            self.note(address, "the greeting was not signed by the key that it names, for this server")
            raise Refusal(HTTPStatus.FORBIDDEN, "your greeting is not signed by your key, for this server.")
        node = self.registry.find(key)
        if node is None:
            self.note(address, f"a key that is not registered (…{key[-12:]})")
            raise Refusal(HTTPStatus.FORBIDDEN, UNKNOWN_KEY)
        if self.mailboxes.is_waiting(node.node_id):
            raise Refusal(HTTPStatus.CONFLICT, CONNECTED_ALREADY)
        self.tokens.pop(self.token_of.get(node.node_id, ""), None)
        token = secrets.token_hex(24)
        self.tokens[token] = node.node_id
        self.token_of[node.node_id] = token
        await _respond(send, {"token": token, "node": str(node.node_id), "name": node.name})

    async def _next(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond with the node's first message after a number, as soon as there is one."""
        node = self._node(scope)
        after = int(_query(scope, "after", "0"))
        await _body(receive, MOST_DOCUMENT_BYTES)
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        self.mailboxes.begin_waiting(node, wake)
        gone: asyncio.Future[Any] = asyncio.ensure_future(_until_disconnected(receive))
        try:
            found = await self._wait_for_message(node, after, woken, gone)
            if gone.done():
                return
            if found is None:
                await _respond(send, {}, HTTPStatus.OK)
                return
            number, message = found
            async with self.deliveries:
                content = message_bytes(message)
                self.mailboxes.delivered_bytes += len(content)
                await _respond_bytes(send, content, number)
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
        node = self._node(scope)
        content = await _body(receive, self.reply_bytes)
        taken = self.mailboxes.put_reply(node, _query(scope, "message", ""), content)
        await _respond(send, {"taken": taken}, HTTPStatus.OK)

    async def _leave(self, scope: Scope, receive: Receive, send: Send) -> None:
        node = self._node(scope)
        await _body(receive, MOST_DOCUMENT_BYTES)
        self.tokens.pop(self.token_of.pop(node, ""), None)
        self.mailboxes.disconnect(node)
        await _respond(send, {})

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        document = await _document(receive)
        if self.admit is None:
            raise Refusal(HTTPStatus.FORBIDDEN, NO_INVITATIONS)
        try:
            sentence = await asyncio.get_running_loop().run_in_executor(None, self.admit, document)
        except InputError as error:
            self.note(_address(scope), f"an invitation was refused: {plain(error)}")
            raise Refusal(HTTPStatus.FORBIDDEN, plain(error)) from None
        await _respond(send, {"admitted": sentence})

    def _node(self, scope: Scope) -> int:
        """The node whose token a request has."""
        words = _header(scope, b"authorization").split()
        node = self.tokens.get(words[1]) if len(words) == 2 and words[0] == "Bearer" else None
        if node is None or self.registry.of_id(node) is None:
            raise Refusal(HTTPStatus.UNAUTHORIZED, "say hello first.")
        return node

    def _new_nonce(self) -> str:
        now = time.monotonic()
        if len(self.nonces) >= MOST_NONCES:
            self.nonces = {nonce: at for nonce, at in self.nonces.items() if at > now - NONCE_SECONDS}
        if len(self.nonces) >= MOST_NONCES:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many greet at once.")
        nonce = secrets.token_hex(16)
        self.nonces[nonce] = now
        return nonce


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(receive: Receive, longest: int) -> bytes:
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


async def _document(receive: Receive) -> dict[str, Any]:
    try:
        document = json.loads(await _body(receive, MOST_DOCUMENT_BYTES))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise Refusal(HTTPStatus.BAD_REQUEST, "this is no JSON document.")
    return document


async def _respond(send: Send, document: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
    await _send(send, status, json.dumps(document).encode(), [(b"content-type", JSON.encode())])


async def _respond_bytes(send: Send, content: bytes, number: int) -> None:
    headers = [(b"content-type", BYTES.encode()), (NUMBER_HEADER.encode(), str(number).encode())]
    await _send(send, HTTPStatus.OK, content, headers)


async def _send(send: Send, status: HTTPStatus, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": int(status), "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


def _header(scope: Scope, name: bytes) -> str:
    found = [value for own, value in scope.get("headers", ()) if own == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _query(scope: Scope, name: str, otherwise: str) -> str:
    text = str(scope.get("query_string", b"").decode("latin-1"))
    value = parse_qs(text).get(name, [otherwise])[0][:64]
    if name == "after" and not (value.isascii() and value.isdigit()):
        raise Refusal(HTTPStatus.BAD_REQUEST, "after must be a number.")
    return value


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
