"""Routes for offers, answers, receipts, and the instructions about the classes.

The operator's texts and pictures are shown as such, never as HTML.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from truthfl.instructions import TEXT_TYPE
from truthfl.page.access import AccessSecrets
from truthfl.page.catalogue import MessageError
from truthfl.page.http import AnswerRequest, StaleMessageError, get_route, parse_answer, parse_cost, post_route
from truthfl.page.job_state import connection_view
from truthfl.page.work import NO_DOCUMENTS, Work, has_no_documents, keys_of

if TYPE_CHECKING:
    from truthfl.instructions import Example
    from truthfl.ledger.signing import PrivateKey


def instructions_routes(work: Work) -> list[Route]:
    """The routes of the instructions and of their examples."""

    def instructions(_: Request) -> Response:
        return JSONResponse(instructions_view(work))

    def example(request: Request) -> Response:
        given = work.assignment().instructions
        named = None if given is None else given.example(request.path_params["sha256"])
        content = None if named is None else _content(work, named)
        if named is None or content is None:
            raise HTTPException(404)
        return Response(content, media_type=named.media_type)

    return [get_route("/api/instructions", instructions), get_route("/examples/{sha256}", example)]


def instructions_view(work: Work) -> dict[str, Any]:
    """The text, and each class with its key, description and examples; `given` is False if there are none."""
    assignment = work.assignment()
    given = assignment.instructions
    if given is None:
        return {"given": False, "text": "", "classes": []}
    told = {one.name: one for one in given.classes}
    return {
        "given": True,
        "text": given.text,
        "classes": [
            {
                "name": name,
                "key": key,
                "description": told[name].description if name in told else "",
                "examples": [_example(work, one) for one in told[name].examples] if name in told else [],
            }
            for name, key in zip(assignment.classes, keys_of(assignment.classes), strict=True)
        ],
    }


def _example(work: Work, example: Example) -> dict[str, Any]:
    """An example: a picture's address or a text; both None if it is no longer in the participant's folder."""

    content = _content(work, example)
    if content is None:
        return {"picture": None, "text": None}
    if example.media_type == TEXT_TYPE:
        return {"picture": None, "text": content.decode("utf-8", "replace")}
    return {"picture": f"examples/{example.sha256}", "text": None}


def _content(work: Work, example: Example) -> bytes | None:
    from truthfl.samples.example_files import kept_example

    return kept_example(work.home, example)


def document_routes(work: Work, key: PrivateKey | None, access: AccessSecrets) -> list[Route]:
    """The routes; `key` signs answers."""
    home = work.home

    def summary(_: Request) -> Response:
        return JSONResponse(documents_summary(home))

    def offer(request: Request) -> Response:
        from truthfl.page.documents import (
            offer_view,
        )

        labeling, computing = (parse_cost(request.query_params.get(name)) for name in ("labeling", "computing"))
        view = offer_view(home, key, labeling, computing, work.pace())
        return JSONResponse(view | {"has_labels": work.existing_labels is not None, "csrf": access.csrf})

    def worth(_: Request) -> Response:
        from truthfl.page.documents import (
            worth_view,
        )

        return JSONResponse(worth_view(home))

    def answer(request: AnswerRequest) -> dict[str, Any]:
        from truthfl.home import participant_folder
        from truthfl.page.documents import (
            answer_to,
            last_offer,
            require_sound_offer,
        )

        offer = last_offer(home)
        if offer is None or offer.hash != request.offer:
            raise StaleMessageError("error.other_offer")
        if key is None:
            raise MessageError("error.no_key")
        if request.accepted:
            require_sound_offer(offer)
        participant_folder.put_answer(home, offer, key, accepted=request.accepted)
        return {"answer": answer_to(home, offer)}

    def receipt(_: Request) -> Response:
        from truthfl.page.documents import (
            receipt_view,
        )

        return JSONResponse(receipt_view(home))

    def check(_: Request) -> Response:
        from truthfl.page.documents import (
            receipt_check,
        )

        return JSONResponse(receipt_check(home, key))

    return [
        get_route("/api/documents", summary),
        get_route("/api/offer", offer),
        get_route("/api/worth", worth),
        post_route("/api/answer", parse_answer, answer),
        get_route("/api/receipt", receipt),
        get_route("/api/receipt/check", check),
    ]


def documents_summary(home: Path) -> dict[str, Any]:
    """As `documents_summary.documents_summary`, which is not imported while there are no documents."""
    if has_no_documents(home):
        return NO_DOCUMENTS | {"connection": connection_view(home)}
    from truthfl.page.documents import documents_summary as read_summary

    return read_summary(home)


def first_page(home: Path) -> str:
    """The page to start with: "offer" while it is unanswered, "receipt" once the job has one, otherwise "label"."""
    if has_no_documents(home):
        return "label"
    from truthfl.page.documents import (
        READ_ERRORS,
        answer_to,
        last_offer,
        last_receipt,
    )

    try:
        offer, receipt = last_offer(home), last_receipt(home)
        if offer is None:
            return "label" if receipt is None else "receipt"
        if receipt is not None and receipt.get("document", {}).get("job") == offer.job.name:
            return "receipt"
        return "label" if answer_to(home, offer) == "acceptance" else "offer"
    except READ_ERRORS:
        return "offer"


def page_after_login(home: Path) -> str:
    """The page after a login: the first page, if no document must be read to know it; otherwise "" for the root."""
    return first_page(home) if has_no_documents(home) else ""
