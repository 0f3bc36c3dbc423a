"""The page's server: an application that serves one participant, on her own machine. Looks at this room and FastAPI.

Everything it serves is in the package, in her home folder or in her data; nothing is fetched from anywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from truthfl.errors import InputError
from truthfl.labeling import papers
from truthfl.labeling.exchange import export_text
from truthfl.labeling.pictures import thumbnail
from truthfl.labeling.safety import Door, Guard
from truthfl.labeling.sample import Source
from truthfl.labeling.static_files import PAGES, StaticFile, static_files
from truthfl.labeling.store import FILE_NAME, LabelStore
from truthfl.labeling.work import StaleError, Work
from truthfl.ledger import desk
from truthfl.ledger.signing import PrivateKey

Nonce = Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{8,64}$")]
Money = Annotated[float | None, Query(ge=0, le=1e15, allow_inf_nan=False)]


class DecisionIn(BaseModel):
    """What she decided about the sample at a position."""

    model_config = ConfigDict(extra="forbid", strict=True)
    edition: str
    nonce: Nonce
    position: int
    action: Literal["label", "skip", "flag", "unflag"]
    label: int | None = None


class UndoIn(BaseModel):
    """Take the last decision back."""

    model_config = ConfigDict(extra="forbid", strict=True)
    edition: str
    nonce: Nonce


class AnswerIn(BaseModel):
    """Her answer to the offer with this hash."""

    model_config = ConfigDict(extra="forbid", strict=True)
    offer: str
    accepted: bool


def page(
    home: Path, samples: Source, classes: Sequence[str], key: PrivateKey | None = None, door: Door | None = None
) -> FastAPI:
    """The application for one participant.

    home     her folder: her papers lie in it, and labels.db
    classes  names of the classes, unless an offer says them
    key      signs her answer to an offer
    door     who may come in; `app.state.door` has it
    """
    store = LabelStore(home / FILE_NAME)
    work = Work(home, samples, classes, store)

    @asynccontextmanager
    async def closing_the_store(_: FastAPI) -> Any:
        yield
        store.close()

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=closing_the_store)
    app.state.door = door or Door()
    app.add_middleware(Guard, door=app.state.door)
    app.add_exception_handler(InputError, _as_sentence)
    app.add_exception_handler(RequestValidationError, _as_sentence)
    _serve_files(app, home)
    _serve_work(app, work, app.state.door)
    _serve_papers(app, home, key)
    return app


def _serve_files(app: FastAPI, home: Path) -> None:
    files = static_files()

    @app.get("/")
    def begin() -> Response:
        return RedirectResponse(f"/{_where_to_begin(home)}", 303)

    @app.get("/static/{name}")
    def static(request: Request, name: str) -> Response:
        return _static(request, files.get(name))

    for name in PAGES:
        app.add_api_route(f"/{name}", _page_route(files[f"{name}.html"]), response_class=Response)


def _serve_work(app: FastAPI, work: Work, door: Door) -> None:
    @app.get("/api/work")
    def state() -> JSONResponse:
        return JSONResponse(work.state() | {"csrf": door.csrf})

    @app.post("/api/decisions")
    def decide(said: DecisionIn) -> JSONResponse:
        return JSONResponse(work.decide(said.edition, said.nonce, said.position, said.action, said.label))

    @app.post("/api/undo")
    def undo(said: UndoIn) -> JSONResponse:
        return JSONResponse(work.undo(said.edition, said.nonce))

    @app.get("/samples/{edition}/{position}")
    def sample(edition: str, position: int) -> Response:
        shown = work.shown(edition, position)
        return Response(shown.content, media_type=shown.media_type)

    @app.get("/thumbs/{edition}/{position}")
    def thumb(edition: str, position: int) -> Response:
        shown = work.shown(edition, position)
        if work.source.kind == "picture":
            shown = thumbnail(shown, work.source.samples[position].name)
        return Response(shown.content, media_type=shown.media_type)

    @app.get("/export/labels.{form}")
    def export(form: Literal["json", "csv"]) -> Response:
        text = export_text(form, work.source, work.store.standing())
        kind = "application/json" if form == "json" else "text/csv; charset=utf-8"
        return Response(text, media_type=kind, headers={"content-disposition": f"attachment; filename=labels.{form}"})


def _serve_papers(app: FastAPI, home: Path, key: PrivateKey | None) -> None:
    csrf = app.state.door.csrf

    @app.get("/api/papers")
    def what_lies_there() -> JSONResponse:
        return JSONResponse(papers.what_lies_there(home))

    @app.get("/api/offer")
    def offer(labeling: Money = None, computing: Money = None) -> JSONResponse:
        return JSONResponse(papers.offer_shown(home, key, labeling, computing) | {"csrf": csrf})

    @app.post("/api/answer")
    def answer(said: AnswerIn) -> JSONResponse:
        meant = papers.last_offer(home)
        if meant is None or meant.hash != said.offer:
            raise StaleError("another offer has come meanwhile; look at that one.")
        if key is None:
            raise InputError("there is no key here to sign with; start the page with --key.")
        desk.give_answer(home, meant, key, accepted=said.accepted)
        return JSONResponse({"answer": papers.answer_to(home, meant)})

    @app.get("/api/receipt")
    def receipt() -> JSONResponse:
        return JSONResponse(papers.receipt_shown(home))

    @app.get("/api/receipt/check")
    def check() -> JSONResponse:
        return JSONResponse(papers.receipt_checked(home, key))


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


def _page_route(file: StaticFile) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        return _static(request, file)

    return show


def _static(request: Request, file: StaticFile | None) -> Response:
    if file is None:
        return JSONResponse({"error": "There is no such file."}, 404)
    headers = {"etag": file.etag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


async def _as_sentence(_: Request, error: Exception) -> JSONResponse:
    if isinstance(error, InputError):
        return JSONResponse({"error": str(error)}, 409 if isinstance(error, StaleError) else 422)
    return JSONResponse({"error": "this is not what the page sends."}, 422)
