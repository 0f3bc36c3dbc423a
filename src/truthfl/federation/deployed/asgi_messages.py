"""Read the bodies of requests and send responses, as an ASGI application does, with limits for what strangers send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from truthfl.federation.deployed.node_hello import BYTES, JSON, NUMBER_HEADER

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MOST_DOCUMENT_BYTES = 20_000
DOCUMENT_SECONDS = 10.0  # in which a document must come


class Refusal(Exception):  # noqa: N818
    """A response other than OK, with a sentence."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        self.status, self.sentence = status, sentence


async def until_disconnected(receive: Receive) -> None:
    """Wait until the other side closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def read_body(receive: Receive, longest: int) -> bytes:
    """A whole body; `Refusal` if it is longer than so many bytes."""
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
    """A short body, which must come soon."""
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
        raise Refusal(HTTPStatus.BAD_REQUEST, "this is no JSON document.")
    return document


async def respond(
    send: Send, document: Mapping[str, Any], status: HTTPStatus = HTTPStatus.OK, *, closes: bool = False
) -> None:
    """Respond with JSON, and close the connection if asked to, or if the request did not come in time."""
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
    """The value of a header that is there once; "" otherwise."""
    found = [value for own, value in scope.get("headers", ()) if own == name]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def body_length(scope: Scope) -> int:
    """How long the body of a request is; `Refusal` if that is not said."""
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
    """Who sent a request."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"
