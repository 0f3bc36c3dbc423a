"""Responses that both pages share: static files, and errors as JSON. Imports Starlette, `requests`, `static_files`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from truthfl.errors import ServiceError, TruthflError
from truthfl.page.requests import StaleError
from truthfl.page.static_files import StaticFile

Handler = Callable[[Request, Exception], Awaitable[Response]]


def file_response(request: Request, file: StaticFile) -> Response:
    """The file, or status 304 if the browser has it."""
    headers = {"etag": file.etag, "cache-control": "no-cache"}
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
        return JSONResponse({"error": "there is no such thing here."}, error.status_code)
    status = 409 if isinstance(error, StaleError) else 503 if isinstance(error, ServiceError) else 422
    return JSONResponse({"error": str(error)}, status)
