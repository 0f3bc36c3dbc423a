"""Routes whose handlers run in threads, so that they do not block other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

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
    """Run a function in a thread once the response that is being made has been sent."""
    asyncio.get_running_loop().call_soon(_threads.submit, function)


async def _in_thread(function: Callable[[Argument], Result], argument: Argument) -> Result:
    """Call a function in a thread of our own pool: Starlette's `run_in_threadpool` would double the import time."""
    return await asyncio.get_running_loop().run_in_executor(_threads, function, argument)
