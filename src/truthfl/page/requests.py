"""Parsing of request bodies: exactly the expected fields, with the expected types. Imports `errors`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truthfl.errors import InputError

NONCE = re.compile(r"[0-9A-Za-z-]{8,64}")
ACTIONS = ("label", "skip", "flag", "unflag")
MAX_COST = 1e15


class StaleError(InputError):
    """The request is about other samples, classes, another offer or another plan than the current ones."""


@dataclass(frozen=True)
class DecisionRequest:
    """A decision about the sample at a position; `nonce` identifies it, also when it is sent again."""

    edition: str
    nonce: str
    position: int
    action: str
    label: int | None = None


@dataclass(frozen=True)
class UndoRequest:
    """Undo the last decision."""

    edition: str
    nonce: str


@dataclass(frozen=True)
class AnswerRequest:
    """Answer to the offer with this hash."""

    offer: str
    accepted: bool


def parse_decision(body: bytes) -> DecisionRequest:
    request = DecisionRequest(
        **body_fields(body, {"edition": str, "nonce": str, "position": int, "action": str}, optional={"label": int})
    )
    require_expected(NONCE.fullmatch(request.nonce) is not None and request.action in ACTIONS)
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
    body: bytes, required: Mapping[str, type], optional: Mapping[str, type] | None = None
) -> dict[str, Any]:
    """The fields of a JSON object; an error if one is missing, unknown or of another type."""
    types = {**required, **(optional or {})}
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    require_expected(isinstance(fields, dict) and required.keys() <= fields.keys() <= types.keys())
    require_expected(all(type(value) is types[name] for name, value in fields.items()))
    return dict(fields)


def require_expected(condition: bool) -> None:
    """An error if a request is not one that the page sends."""
    if not condition:
        raise InputError("this is not what the page sends.")
