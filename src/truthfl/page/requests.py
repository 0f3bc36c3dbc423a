"""Parsing of request bodies: exactly the expected fields, with the expected types."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from truthfl.errors import InputError
from truthfl.page.catalogue import MessageError

NONCE = re.compile(r"[0-9A-Za-z-]{8,64}")
ACTIONS = ("label", "skip", "flag", "unflag")
MAX_COST = 1e15

Types = type | tuple[type, ...]  # of a field
Numbers = int | list[int]  # of one class, or of several


class StaleError(InputError):
    """The request is about other samples, classes, another offer or another plan than the current ones."""


class StaleMessageError(MessageError, StaleError):
    """A `StaleError` whose sentence is in the catalogues."""


class ConflictError(MessageError):
    """Samples have other labels than the page showed; `current` are their states, as a decision's response has them."""

    def __init__(self, current: list[dict[str, Any]]) -> None:
        super().__init__("error.conflict")
        self.current = current


class DecisionRequest(NamedTuple):
    """A decision about the sample at a position; `nonce` identifies it, also when it is sent again.

    label  the number of a class; if samples may have several, a list of them
    seen   the label that the page showed, -1 or an empty list for none; None: whatever is stored is replaced
    """

    edition: str
    nonce: str
    position: int
    action: str
    label: Numbers | None = None
    seen: Numbers | None = None


class BulkRequest(NamedTuple):
    """A label for the samples at several positions, as one step; `seen`: of each, the label that the page showed.

    label  the number of a class, the same for all; if samples may have several, a list of them for each
    """

    edition: str
    nonce: str
    positions: list[int]
    label: int | list[list[int]]
    seen: list[Numbers]


class UndoRequest(NamedTuple):
    """Undo the last decision."""

    edition: str
    nonce: str


class AnswerRequest(NamedTuple):
    """Answer to the offer with this hash."""

    offer: str
    accepted: bool


def parse_decision(body: bytes) -> DecisionRequest:
    request = DecisionRequest(
        **body_fields(
            body,
            {"edition": str, "nonce": str, "position": int, "action": str},
            optional={"label": (int, list), "seen": (int, list)},
        )
    )
    require_expected(all(_are_numbers(one) for one in (request.label, request.seen) if one is not None))
    require_expected(NONCE.fullmatch(request.nonce) is not None and request.action in ACTIONS)
    return request


def parse_bulk(body: bytes) -> BulkRequest:
    types: dict[str, Types] = {"edition": str, "nonce": str, "positions": list, "label": (int, list), "seen": list}
    request = BulkRequest(**body_fields(body, types))
    require_expected(NONCE.fullmatch(request.nonce) is not None)
    require_expected(0 < len(request.positions) == len(request.seen) == len({*map(str, request.positions)}))
    require_expected(all(type(value) is int for value in request.positions))
    labels = request.label if isinstance(request.label, list) else [request.label] * len(request.positions)
    require_expected(len(labels) == len(request.positions) and all(map(_are_numbers, (*labels, *request.seen))))
    return request


def parse_undo(body: bytes) -> UndoRequest:
    request = UndoRequest(**body_fields(body, {"edition": str, "nonce": str}))
    require_expected(NONCE.fullmatch(request.nonce) is not None)
    return request


def parse_answer(body: bytes) -> AnswerRequest:
    return AnswerRequest(**body_fields(body, {"offer": str, "accepted": bool}))


def parse_cost(text: str | None) -> float | None:
    """A cost in a URL's query; None if it is missing."""
    if text is None:
        return None
    try:
        cost = float(text)
    except ValueError:
        cost = math.nan
    require_expected(0 <= cost <= MAX_COST)
    return cost


def body_fields(
    body: bytes, required: Mapping[str, Types], optional: Mapping[str, Types] | None = None
) -> dict[str, Any]:
    """The fields of a JSON object; an error if one is missing, unknown or of another type."""
    types: dict[str, Types] = {**required, **(optional or {})}
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    require_expected(isinstance(fields, dict) and required.keys() <= fields.keys() <= types.keys())
    require_expected(all(_has_type(value, types[name]) for name, value in fields.items()))
    return dict(fields)


def _has_type(value: object, allowed: Types) -> bool:
    return type(value) in (allowed if isinstance(allowed, tuple) else (allowed,))


def _are_numbers(value: object) -> bool:
    """Whether this is a whole number, or a list of such."""
    return all(type(one) is int for one in (value if isinstance(value, list) else [value]))


def require_expected(condition: bool) -> None:
    """An error if a request is not one that the page sends."""
    if not condition:
        raise MessageError("error.unexpected")
