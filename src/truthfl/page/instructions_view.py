"""What the page shows of the instructions about the classes: descriptions, and examples by their digests.

All of it comes from the operator and is shown as text or as a picture, never as HTML.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from truthfl.page.routing import get_route
from truthfl.page.shortcuts import keys_of
from truthfl.page.work import Work

if TYPE_CHECKING:
    from truthfl.instructions import Example


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
    """An example: the address of a picture, or a text; both None if it is not in her folder any more."""
    from truthfl.instructions import TEXT_TYPE

    content = _content(work, example)
    if content is None:
        return {"picture": None, "text": None}
    if example.media_type == TEXT_TYPE:
        return {"picture": None, "text": content.decode("utf-8", "replace")}
    return {"picture": f"examples/{example.sha256}", "text": None}


def _content(work: Work, example: Example) -> bytes | None:
    from truthfl.samples.example_files import kept_example

    return kept_example(work.home, example)
