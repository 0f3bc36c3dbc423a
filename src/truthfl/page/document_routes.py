"""What the page is told of offers, answers and receipts. Looks at this room, at `documents_shown` when asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from truthfl.errors import InputError
from truthfl.page.access_secrets import Door
from truthfl.page.document_names import EMPTY, is_empty
from truthfl.page.requests import AnswerSaid, answer_said, cost_said
from truthfl.page.routing import getting, posting
from truthfl.page.work import StaleError, Work

if TYPE_CHECKING:
    from truthfl.ledger.signing import PrivateKey


def paper_routes(work: Work, key: PrivateKey | None, door: Door) -> list[Route]:
    home = work.home

    def lying(_: Request) -> Response:
        return JSONResponse(what_lies_there(home))

    def offer(request: Request) -> Response:
        from truthfl.page import documents_shown

        labeling, computing = (cost_said(request.query_params.get(name)) for name in ("labeling", "computing"))
        shown = documents_shown.offer_shown(home, key, labeling, computing)
        return JSONResponse(shown | {"given": work.given is not None, "csrf": door.csrf})

    def answer(said: AnswerSaid) -> dict[str, Any]:
        from truthfl.ledger import participant_folder
        from truthfl.page import documents_shown

        meant = documents_shown.last_offer(home)
        if meant is None or meant.hash != said.offer:
            raise StaleError("another offer has come meanwhile; look at that one.")
        if key is None:
            raise InputError("there is no key here to sign with; start the page with --key.")
        participant_folder.give_answer(home, meant, key, accepted=said.accepted)
        return {"answer": documents_shown.answer_to(home, meant)}

    def receipt(_: Request) -> Response:
        from truthfl.page import documents_shown

        return JSONResponse(documents_shown.receipt_shown(home))

    def check(_: Request) -> Response:
        from truthfl.page import documents_shown

        return JSONResponse(documents_shown.receipt_checked(home, key))

    return [
        getting("/api/papers", lying),
        getting("/api/offer", offer),
        posting("/api/answer", answer_said, answer),
        getting("/api/receipt", receipt),
        getting("/api/receipt/check", check),
    ]


def what_lies_there(home: Path) -> dict[str, Any]:
    """As `papers` tells it, which is not loaded while nothing lies there."""
    if is_empty(home):
        return EMPTY
    from truthfl.page import documents_shown

    return documents_shown.what_lies_there(home)


def where_to_begin(home: Path) -> str:
    """The page that is next: an offer to answer, the receipt of the job it was for, or labeling."""
    if is_empty(home):
        return "label"
    from truthfl.page import documents_shown

    try:
        offer, receipt = documents_shown.last_offer(home), documents_shown.last_receipt(home)
        if offer is None:
            return "label" if receipt is None else "receipt"
        if receipt is not None and receipt.get("document", {}).get("job") == offer.job.name:
            return "receipt"
        return "label" if documents_shown.answer_to(home, offer) == "acceptance" else "offer"
    except documents_shown.CANNOT_BE_READ:
        return "offer"
