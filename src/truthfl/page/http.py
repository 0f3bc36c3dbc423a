"""Requests, parsed strictly; responses; routes whose handlers run in threads."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from truthfl.coded_text import sentence_of
from truthfl.errors import InputError, ServiceError, TruthflError
from truthfl.page.catalogue import MessageError, shown
from truthfl.page.files import StaticFile

NONCE = re.compile(r"[0-9A-Za-z-]{8,64}")
ACTIONS = ("label", "skip", "flag", "unflag")
MAX_COST = 1e15

Types = type | tuple[type, ...]  # of a field
Numbers = int | list[int]  # of one class, or of several


class StaleError(InputError):
    """The request is about other samples, classes, another offer or another plan than the current ones."""


class StaleMessageError(MessageError, StaleError):
    """A `StaleError` whose sentence is in the catalogues."""


class ConflictError(MessageError):
    """Samples have other labels than the page showed; `current` has their states, as in a decision's response."""

    def __init__(self, current: list[dict[str, Any]]) -> None:
        super().__init__("error.conflict")
        self.current = current


class DecisionRequest(NamedTuple):
    """A decision about the sample at a position; `nonce` identifies it, also when it is sent again.

    label  the number of a class; if samples may have several, a list of them
    seen   the label that the page showed, -1 or an empty list for none; None: whatever is stored is replaced
    """

    edition: str
    nonce: str
    position: int
    action: str
    label: Numbers | None = None
    seen: Numbers | None = None


class BulkRequest(NamedTuple):
    """A label for the samples at several positions, as one step.

    label  the number of a class, the same for all; if samples may have several, a list of them for each sample
    seen   for each sample, the label that the page showed
    """

    edition: str
    nonce: str
    positions: list[int]
    label: int | list[list[int]]
    seen: list[Numbers]


class UndoRequest(NamedTuple):
    """Undo the last decision."""

    edition: str
    nonce: str


class AnswerRequest(NamedTuple):
    """Answer to the offer with this hash."""

    offer: str
    accepted: bool


def parse_decision(body: bytes) -> DecisionRequest:
    request = DecisionRequest(
        **body_fields(
            body,
            {"edition": str, "nonce": str, "position": int, "action": str},
            optional={"label": (int, list), "seen": (int, list)},
        )
    )
    require_expected(all(_are_numbers(one) for one in (request.label, request.seen) if one is not None))
    require_expected(NONCE.fullmatch(request.nonce) is not None and request.action in ACTIONS)
    return request


def parse_bulk(body: bytes) -> BulkRequest:
    types: dict[str, Types] = {"edition": str, "nonce": str, "positions": list, "label": (int, list), "seen": list}
    request = BulkRequest(**body_fields(body, types))
    require_expected(NONCE.fullmatch(request.nonce) is not None)
    require_expected(0 < len(request.positions) == len(request.seen) == len({*map(str, request.positions)}))
    require_expected(all(type(value) is int for value in request.positions))
    labels = request.label if isinstance(request.label, list) else [request.label] * len(request.positions)
    require_expected(len(labels) == len(request.positions) and all(map(_are_numbers, (*labels, *request.seen))))
    return request


def parse_undo(body: bytes) -> UndoRequest:
    request = UndoRequest(**body_fields(body, {"edition": str, "nonce": str}))
    require_expected(NONCE.fullmatch(request.nonce) is not None)
    return request


def parse_answer(body: bytes) -> AnswerRequest:
    return AnswerRequest(**body_fields(body, {"offer": str, "accepted": bool}))


def parse_cost(text: str | None) -> float | None:
    """A cost in a URL's query; None if it is missing."""
    if text is None:
        return None
    try:
        cost = float(text)
    except ValueError:
        cost = math.nan
    require_expected(0 <= cost <= MAX_COST)
    return cost


def body_fields(
    body: bytes, required: Mapping[str, Types], optional: Mapping[str, Types] | None = None
) -> dict[str, Any]:
    """The fields of a JSON object; an error if one is missing, unknown or of the wrong type."""
    types: dict[str, Types] = {**required, **(optional or {})}
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    require_expected(isinstance(fields, dict) and required.keys() <= fields.keys() <= types.keys())
    require_expected(all(_has_type(value, types[name]) for name, value in fields.items()))
    return dict(fields)


def _has_type(value: object, allowed: Types) -> bool:
    return type(value) in (allowed if isinstance(allowed, tuple) else (allowed,))


def _are_numbers(value: object) -> bool:
    """Whether this is a whole number, or a list of whole numbers."""
    return all(type(one) is int for one in (value if isinstance(value, list) else [value]))


def require_expected(condition: bool) -> None:
    """Raise an error if a request is not one that the page sends."""
    if not condition:
        raise MessageError("error.unexpected")


Handler = Callable[[Request, Exception], Awaitable[Response]]


def file_response(request: Request, file: StaticFile, *, vary: str | None = None) -> Response:
    """The file, or status 304 if the browser has it; `vary` names the header on which it depends."""
    headers = {"etag": file.etag, "cache-control": "no-cache"} | ({} if vary is None else {"vary": vary})
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


def static_route(files: Mapping[str, StaticFile]) -> Route:
    """The route of these files, by name."""

    async def static(request: Request) -> Response:
        file = files.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        return file_response(request, file)

    return Route("/static/{name}", static)


def error_handlers() -> dict[type[Exception], Handler]:
    """By kind of error: what the browser gets."""
    return {
        TruthflError: _error_response,
        HTTPException: _error_response,
        Exception: _internal_error_response,
    }


async def _internal_error_response(_: Request, __: Exception) -> Response:
    """An empty response; the traceback is printed in the terminal."""
    return JSONResponse({}, 500)


async def _error_response(_: Request, error: Exception) -> Response:
    """The error's message as JSON."""
    if isinstance(error, HTTPException):
        return JSONResponse(_error_document(MessageError("error.not_found")), error.status_code)
    if isinstance(error, ConflictError):
        return JSONResponse(_error_document(error) | {"conflict": error.current}, 409)
    status = 409 if isinstance(error, StaleError) else 503 if isinstance(error, ServiceError) else 422
    return JSONResponse(_error_document(error), status)


def _error_document(error: Exception) -> dict[str, Any]:
    """The sentence in English and, if it is in the catalogues, its key and values."""
    if isinstance(error, MessageError):
        return {"error": str(error), "message": asdict(error.message)}
    form = shown(sentence_of(error))
    return {"error": str(error)} | ({} if "english" in form else {"message": form})


MAX_THREADS = 32

Body = TypeVar("Body")
Argument = TypeVar("Argument")
Result = TypeVar("Result")

_threads = ThreadPoolExecutor(MAX_THREADS, "labeling page")


def get_route(path: str, respond: Callable[[Request], Response]) -> Route:
    """A GET route; `respond` runs in a thread."""

    async def get(request: Request) -> Response:
        return await _in_thread(respond, request)

    return Route(path, get)


def post_route(path: str, parse: Callable[[bytes], Body], apply: Callable[[Body], dict[str, Any]]) -> Route:
    """A POST route: `parse` reads the request's body, `apply` runs in a thread and returns the JSON of the response."""

    async def post(request: Request) -> Response:
        body = parse(await request.body())
        return JSONResponse(await _in_thread(apply, body))

    return Route(path, post, methods=["POST"])


def run_in_background(function: Callable[[], object]) -> None:
    """Run a function in a thread after the current response has been sent."""
    asyncio.get_running_loop().call_soon(_threads.submit, function)


async def _in_thread(function: Callable[[Argument], Result], argument: Argument) -> Result:
    """Call a function in a thread of our own pool: Starlette's `run_in_threadpool` would double the import time."""
    return await asyncio.get_running_loop().run_in_executor(_threads, function, argument)
