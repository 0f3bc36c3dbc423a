"""Routes of the page's server: what an address asks for is done beside other requests. Looks at Starlette."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

AT_ONCE = 32

Said = TypeVar("Said")
Given = TypeVar("Given")
Done = TypeVar("Done")

_workers = ThreadPoolExecutor(AT_ONCE, "labeling page")


def getting(path: str, answer: Callable[[Request], Response]) -> Route:
    """Something that is only looked at."""

    async def get(request: Request) -> Response:
        return await _beside(answer, request)

    return Route(path, get)


def posting(path: str, read: Callable[[bytes], Said], do: Callable[[Said], dict[str, Any]]) -> Route:
    """A change: its body is read strictly."""

    async def post(request: Request) -> Response:
        said = read(await request.body())
        return JSONResponse(await _beside(do, said))

    return Route(path, post, methods=["POST"])


def begin(do: Callable[[], object]) -> None:
    """Nobody waits for it."""
    _workers.submit(do)


async def _beside(do: Callable[[Given], Done], given: Given) -> Done:
    """With Python's own threads: Starlette's way loads as much again as all the rest of it."""
    return await asyncio.get_running_loop().run_in_executor(_workers, do, given)
