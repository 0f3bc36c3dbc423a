"""The page's server: an application that serves one participant, on her own machine. Looks at this room and Starlette.

Everything it serves is in the package, in her home folder or in her data; nothing is fetched from anywhere. Starlette
alone, for a page must be there at once: what else a web framework loads takes longer than all the rest of the start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from truthfl.errors import ServiceError, TruthflError
from truthfl.page.access_secrets import Door
from truthfl.page.document_routes import paper_routes, what_lies_there, where_to_begin
from truthfl.page.request_guard import Guard
from truthfl.page.requests import DecisionSaid, UndoSaid, decision_said, undo_said
from truthfl.page.routing import begin, getting, posting
from truthfl.page.static_files import PAGES, StaticFile, static_files
from truthfl.page.work import Change, StaleError, Work

if TYPE_CHECKING:
    from truthfl.ledger.signing import PrivateKey

EXPORTS = {"json": "application/json", "csv": "text/csv; charset=utf-8"}

Endpoint = Callable[[Request], Awaitable[Response]]


def page(work: Work, key: PrivateKey | None, door: Door) -> ASGIApp:
    """The application for one participant.

    key   signs her answer to an offer
    door  who may come in
    """
    routes = [*_files(work.home), *_labeling(work, door), *paper_routes(work, key, door)]
    app = Starlette(
        routes=[Mount(door.root, routes=routes)],
        exception_handlers={TruthflError: _as_sentence, HTTPException: _as_sentence, Exception: _as_failure},
    )
    return Guard(app, door)


def _files(home: Path) -> list[Route]:
    files = static_files()

    def lead_on(_: Request) -> Response:
        return RedirectResponse(where_to_begin(home), 303)

    async def static(request: Request) -> Response:
        file = files.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        return _static(request, file)

    pages = [Route(f"/{name}", _page(files[f"{name}.html"])) for name in PAGES]
    return [getting("/", lead_on), Route("/static/{name}", static), *pages]


def _labeling(work: Work, door: Door) -> list[Route]:
    def state(_: Request) -> Response:
        lying = what_lies_there(work.home)  # before the state: what comes between the two is found to be new
        return JSONResponse(work.state() | {"papers": lying, "csrf": door.csrf})

    def decide(said: DecisionSaid) -> dict[str, Any]:
        return work.decide(said.edition, said.nonce, said.position, said.action, said.label)

    def undo(said: UndoSaid) -> dict[str, Any]:
        return work.undo(said.edition, said.nonce)

    def shown(request: Request, change: Change | None) -> Response:
        found = work.media(request.path_params["edition"], request.path_params["position"], change)
        return Response(found.content, media_type=found.media_type)

    def sample(request: Request) -> Response:
        from truthfl.samples.pictures import reencoded

        return shown(request, reencoded if "reencoded" in request.query_params else None)

    def thumb(request: Request) -> Response:
        from truthfl.samples.pictures import thumbnail

        return shown(request, thumbnail)

    def export(request: Request) -> Response:
        from truthfl.samples.label_exchange import export_text

        form = request.path_params["form"]
        if form not in EXPORTS:
            raise HTTPException(404)
        text = export_text(form, work.source, work.store.states())
        name = {"content-disposition": f"attachment; filename=labels.{form}"}
        return Response(text, media_type=EXPORTS[form], headers=name)

    return [
        getting("/api/work", state),
        posting("/api/decisions", decision_said, decide),
        posting("/api/undo", undo_said, undo),
        getting("/samples/{edition}/{position:int}", sample),
        getting("/thumbs/{edition}/{position:int}", thumb),
        getting("/export/labels.{form}", export),
    ]


def _page(file: StaticFile) -> Endpoint:
    async def show(request: Request) -> Response:
        begin(_load_pictures)
        return _static(request, file)

    return show


def _load_pictures() -> None:
    """What is asked for next, loaded while the browser reads the page."""
    import truthfl.samples.pictures  # noqa: F401


def _static(request: Request, file: StaticFile) -> Response:
    headers = {"etag": file.etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


async def _as_failure(_: Request, __: Exception) -> Response:
    """What went wrong is told where truthfl was started."""
    return JSONResponse({}, 500)


async def _as_sentence(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return JSONResponse({"error": "there is no such thing here."}, error.status_code)
    status = 409 if isinstance(error, StaleError) else 503 if isinstance(error, ServiceError) else 422
    return JSONResponse({"error": str(error)}, status)
