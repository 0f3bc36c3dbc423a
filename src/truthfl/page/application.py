"""The page's web application for one participant, on that participant's machine.

It serves files from the package, the participant's folder and their data, and fetches nothing from the network. It
uses Starlette alone, since a larger web framework would double the start time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from truthfl.page.access import AccessSecrets, Guard
from truthfl.page.catalogue import chosen_language
from truthfl.page.document_routes import (
    document_routes,
    documents_summary,
    first_page,
    instructions_routes,
    page_after_login,
)
from truthfl.page.files import PAGES, localized_file, page_style, static_files, style_path
from truthfl.page.http import (
    BulkRequest,
    DecisionRequest,
    UndoRequest,
    error_handlers,
    file_response,
    get_route,
    parse_bulk,
    parse_decision,
    parse_undo,
    post_route,
    run_in_background,
    static_route,
)
from truthfl.page.work import SecondLook, Work
from truthfl.samples.label_exchange import export_text

if TYPE_CHECKING:
    from truthfl.learning.people.second_opinion import OpinionSource
    from truthfl.ledger.signing import PrivateKey

PAGES_WITH_SAMPLES = ("label", "review")
EXPORTS = {"json": "application/json", "csv": "text/csv; charset=utf-8"}

Endpoint = Callable[[Request], Awaitable[Response]]


def page(
    work: Work,
    key: PrivateKey | None,
    access: AccessSecrets,
    make_opinion: Callable[[], OpinionSource] | None = None,
) -> ASGIApp:
    """The application for one participant.

    key           signs answers to offers
    access        secrets that a request must have
    make_opinion  returns a model that judges the participant's labels
    """
    second_look = SecondLook(work, make_opinion)
    routes = [
        *_file_routes(work.home),
        *_labeling_routes(work, access),
        *instructions_routes(work),
        get_route("/api/second_look", lambda _: JSONResponse(second_look.answer())),
        *document_routes(work, key, access),
    ]
    app = Starlette(
        routes=[Mount(access.root, routes=routes)],
        exception_handlers=error_handlers(),
    )
    return Guard(app, access, chosen_language, lambda: page_after_login(work.home))


def _file_routes(home: Path) -> list[Route]:
    files = {name: file for name, file in static_files().items() if not name.endswith((".html", ".js"))}

    def redirect(_: Request) -> Response:
        return RedirectResponse(first_page(home), 303)

    pages = [Route(f"/{name}", _page(name)) for name in PAGES]
    scripts = [Route(f"/static/{name}.js", _script(f"{name}.js")) for name in PAGES]
    styles = [Route(f"/{style_path(name)}", _style(name)) for name in PAGES]
    return [get_route("/", redirect), *scripts, *styles, static_route(files), *pages]


def _labeling_routes(work: Work, access: AccessSecrets) -> list[Route]:
    def state(_: Request) -> Response:
        documents = documents_summary(work.home)  # read first: a later document is then reported as new
        return JSONResponse(work.state() | {"documents": documents, "csrf": access.csrf})

    def decide(request: DecisionRequest) -> dict[str, Any]:
        return work.decide(request)

    def decide_together(request: BulkRequest) -> dict[str, Any]:
        return work.decide_together(request)

    def undo(request: UndoRequest) -> dict[str, Any]:
        return work.undo(request.edition, request.nonce)

    def media_response(request: Request, form: str) -> Response:
        from truthfl.samples.shown_pictures import FORMS

        media = work.media(request.path_params["edition"], request.path_params["position"], FORMS[form])
        return Response(media.content, media_type=media.media_type)

    def sample(request: Request) -> Response:
        asked = (form for form in ("reencoded", "whole") if form in request.query_params)
        return media_response(request, next(asked, "screen"))

    def thumb(request: Request) -> Response:
        return media_response(request, "thumb")

    def export(request: Request) -> Response:
        file_format = request.path_params["format"]
        if file_format not in EXPORTS:
            raise HTTPException(404)
        text = export_text(file_format, work.source, work.store.states(), several=work.assignment().several)
        headers = {"content-disposition": f"attachment; filename=labels.{file_format}"}
        return Response(text, media_type=EXPORTS[file_format], headers=headers)

    return [
        get_route("/api/work", state),
        post_route("/api/decisions", parse_decision, decide),
        post_route("/api/decisions/bulk", parse_bulk, decide_together),
        post_route("/api/undo", parse_undo, undo),
        get_route("/samples/{edition}/{position:int}", sample),
        get_route("/thumbs/{edition}/{position:int}", thumb),
        get_route("/export/labels.{format}", export),
    ]


def _page(name: str) -> Endpoint:
    async def show(request: Request) -> Response:
        run_in_background(partial(_prepare, name, _language(request)))
        return _localized(request, f"{name}.html")

    return show


def _script(name: str) -> Endpoint:
    async def script(request: Request) -> Response:
        return _localized(request, name)

    return script


def _style(name: str) -> Endpoint:
    async def style(request: Request) -> Response:
        return file_response(request, page_style(name))

    return style


def _localized(request: Request, name: str) -> Response:
    """The file in the browser's language."""
    return file_response(request, localized_file(name, _language(request)), vary="Accept-Language")


def _language(request: Request) -> str:
    return chosen_language(request.headers.get("accept-language", ""))


def _prepare(name: str, language: str) -> None:
    """Prepare what the browser will request next, while it is still starting a process for the page."""
    page_style(name)
    localized_file(f"{name}.js", language)
    if name in PAGES_WITH_SAMPLES:
        import truthfl.samples.shown_pictures  # noqa: F401
