"""Responses that both pages share: static files, and errors as JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from truthfl.coded_text import sentence_of
from truthfl.errors import ServiceError, TruthflError
from truthfl.page.catalogue import MessageError
from truthfl.page.requests import ConflictError, StaleError
from truthfl.page.shown_text import shown
from truthfl.page.static_files import StaticFile

Handler = Callable[[Request, Exception], Awaitable[Response]]


def file_response(request: Request, file: StaticFile, *, vary: str | None = None) -> Response:
    """The file, or status 304 if the browser has it; `vary` names the header that it depends on."""
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
