"""HTTP routes for offers, answers and receipts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from truthfl.page.access_secrets import AccessSecrets
from truthfl.page.catalogue import MessageError
from truthfl.page.document_names import NO_DOCUMENTS, has_no_documents
from truthfl.page.job_state import connection_view
from truthfl.page.requests import AnswerRequest, StaleMessageError, parse_answer, parse_cost
from truthfl.page.routing import get_route, post_route
from truthfl.page.work import Work

if TYPE_CHECKING:
    from truthfl.ledger.signing import PrivateKey


def document_routes(work: Work, key: PrivateKey | None, access: AccessSecrets) -> list[Route]:
    """The routes; `key` signs answers."""
    home = work.home

    def summary(_: Request) -> Response:
        return JSONResponse(documents_summary(home))

    def offer(request: Request) -> Response:
        from truthfl.page import document_views

        labeling, computing = (parse_cost(request.query_params.get(name)) for name in ("labeling", "computing"))
        view = document_views.offer_view(home, key, labeling, computing, work.pace())
        return JSONResponse(view | {"has_labels": work.existing_labels is not None, "csrf": access.csrf})

    def worth(_: Request) -> Response:
        from truthfl.page import document_views

        return JSONResponse(document_views.worth_view(home))

    def answer(request: AnswerRequest) -> dict[str, Any]:
        from truthfl.ledger import participant_folder
        from truthfl.page import document_views

        offer = document_views.last_offer(home)
        if offer is None or offer.hash != request.offer:
            raise StaleMessageError("error.other_offer")
        if key is None:
            raise MessageError("error.no_key")
        if request.accepted:
            document_views.require_sound_offer(offer)
        participant_folder.put_answer(home, offer, key, accepted=request.accepted)
        return {"answer": document_views.answer_to(home, offer)}

    def receipt(_: Request) -> Response:
        from truthfl.page import document_views

        return JSONResponse(document_views.receipt_view(home))

    def check(_: Request) -> Response:
        from truthfl.page import document_views

        return JSONResponse(document_views.receipt_check(home, key))

    return [
        get_route("/api/documents", summary),
        get_route("/api/offer", offer),
        get_route("/api/worth", worth),
        post_route("/api/answer", parse_answer, answer),
        get_route("/api/receipt", receipt),
        get_route("/api/receipt/check", check),
    ]


def documents_summary(home: Path) -> dict[str, Any]:
    """The same as `documents_summary.documents_summary`, which is not imported while there are no documents."""
    if has_no_documents(home):
        return NO_DOCUMENTS | {"connection": connection_view(home)}
    from truthfl.page.documents_summary import documents_summary as read_summary

    return read_summary(home)


def first_page(home: Path) -> str:
    """The page to start with: "offer" while it is unanswered, "receipt" once the job has one, otherwise "label"."""
    if has_no_documents(home):
        return "label"
    from truthfl.page import document_views

    try:
        offer, receipt = document_views.last_offer(home), document_views.last_receipt(home)
        if offer is None:
            return "label" if receipt is None else "receipt"
        if receipt is not None and receipt.get("document", {}).get("job") == offer.job.name:
            return "receipt"
        return "label" if document_views.answer_to(home, offer) == "acceptance" else "offer"
    except document_views.READ_ERRORS:
        return "offer"


def page_after_login(home: Path) -> str:
    """The page that a login leads to: the first one if no document has to be read for it, otherwise "" for the root."""
    return first_page(home) if has_no_documents(home) else ""
