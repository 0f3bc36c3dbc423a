"""The page's server: an application that serves one participant, on her own machine. Looks at this room and Starlette.

Everything it serves is in the package, in her home folder or in her data; nothing is fetched from anywhere. Starlette
alone, for a page must be there at once: what else a web framework loads takes longer than all the rest of the start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from truthfl.errors import InputError
from truthfl.labeling import papers
from truthfl.labeling.door import Door
from truthfl.labeling.exchange import export_text
from truthfl.labeling.pictures import redrawn, thumbnail
from truthfl.labeling.safety import Guard
from truthfl.labeling.said import AnswerSaid, DecisionSaid, UndoSaid, answer_said, cost_said, decision_said, undo_said
from truthfl.labeling.static_files import PAGES, StaticFile, static_files
from truthfl.labeling.work import Change, StaleError, Work
from truthfl.ledger import desk
from truthfl.ledger.signing import PrivateKey

EXPORTS = {"json": "application/json", "csv": "text/csv; charset=utf-8"}

Said = TypeVar("Said")
Endpoint = Callable[[Request], Awaitable[Response]]


def page(work: Work, key: PrivateKey | None, door: Door) -> ASGIApp:
    """The application for one participant.

    key   signs her answer to an offer
    door  who may come in
    """
    routes = [*_files(work.home), *_labeling(work, door), *_papers(work, key, door)]
    app = Starlette(
        routes=[Mount(door.root, routes=routes)],
        exception_handlers={InputError: _as_sentence, HTTPException: _as_sentence, Exception: _as_failure},
    )
    return Guard(app, door)


def _files(home: Path) -> list[Route]:
    files = static_files()

    def begin(_: Request) -> Response:
        return RedirectResponse(_where_to_begin(home), 303)

    async def static(request: Request) -> Response:
        file = files.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        return _static(request, file)

    pages = [Route(f"/{name}", _page(files[f"{name}.html"])) for name in PAGES]
    return [Route("/", begin), Route("/static/{name}", static), *pages]


def _labeling(work: Work, door: Door) -> list[Route]:
    def state(_: Request) -> Response:
        return JSONResponse(work.state() | {"csrf": door.csrf})

    def decide(said: DecisionSaid) -> dict[str, Any]:
        return work.decide(said.edition, said.nonce, said.position, said.action, said.label)

    def undo(said: UndoSaid) -> dict[str, Any]:
        return work.undo(said.edition, said.nonce)

    def shown(request: Request, change: Change | None) -> Response:
        found = work.shown(request.path_params["edition"], request.path_params["position"], change)
        return Response(found.content, media_type=found.media_type)

    def sample(request: Request) -> Response:
        return shown(request, redrawn if "redrawn" in request.query_params else None)

    def thumb(request: Request) -> Response:
        return shown(request, thumbnail)

    def export(request: Request) -> Response:
        form = request.path_params["form"]
        if form not in EXPORTS:
            raise HTTPException(404)
        text = export_text(form, work.source, work.store.standing())
        name = {"content-disposition": f"attachment; filename=labels.{form}"}
        return Response(text, media_type=EXPORTS[form], headers=name)

    return [
        Route("/api/work", state),
        _post("/api/decisions", decision_said, decide),
        _post("/api/undo", undo_said, undo),
        Route("/samples/{edition}/{position:int}", sample),
        Route("/thumbs/{edition}/{position:int}", thumb),
        Route("/export/labels.{form}", export),
    ]


def _papers(work: Work, key: PrivateKey | None, door: Door) -> list[Route]:
    home = work.home

    def what_lies_there(_: Request) -> Response:
        return JSONResponse(papers.what_lies_there(home))

    def offer(request: Request) -> Response:
        labeling, computing = (cost_said(request.query_params.get(name)) for name in ("labeling", "computing"))
        shown = papers.offer_shown(home, key, labeling, computing)
        return JSONResponse(shown | {"given": work.given is not None, "csrf": door.csrf})

    def answer(said: AnswerSaid) -> dict[str, Any]:
        meant = papers.last_offer(home)
        if meant is None or meant.hash != said.offer:
            raise StaleError("another offer has come meanwhile; look at that one.")
        if key is None:
            raise InputError("there is no key here to sign with; start the page with --key.")
        desk.give_answer(home, meant, key, accepted=said.accepted)
        return {"answer": papers.answer_to(home, meant)}

    def receipt(_: Request) -> Response:
        return JSONResponse(papers.receipt_shown(home))

    def check(_: Request) -> Response:
        return JSONResponse(papers.receipt_checked(home, key))

    return [
        Route("/api/papers", what_lies_there),
        Route("/api/offer", offer),
        _post("/api/answer", answer_said, answer),
        Route("/api/receipt", receipt),
        Route("/api/receipt/check", check),
    ]


def _where_to_begin(home: Path) -> str:
    """The page that is next: an offer to answer, the receipt of the job it was for, or labeling."""
    try:
        offer, receipt = papers.last_offer(home), papers.last_receipt(home)
        if offer is None:
            return "label" if receipt is None else "receipt"
        if receipt is not None and receipt.get("document", {}).get("job") == offer.job:
            return "receipt"
        return "label" if papers.answer_to(home, offer) == "acceptance" else "offer"
    except papers.CANNOT_BE_READ:
        return "offer"


def _post(path: str, read: Callable[[bytes], Said], do: Callable[[Said], dict[str, Any]]) -> Route:
    """A change: its body is read strictly, and what it does is done beside other requests."""

    async def change(request: Request) -> Response:
        said = read(await request.body())
        return JSONResponse(await run_in_threadpool(do, said))

    return Route(path, change, methods=["POST"])


def _page(file: StaticFile) -> Endpoint:
    async def show(request: Request) -> Response:
        return _static(request, file)

    return show


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
    return JSONResponse({"error": str(error)}, 409 if isinstance(error, StaleError) else 422)
