"""What the page says to its server, taken strictly: these fields, of these types, and no others. Looks at `errors`."""

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
LARGEST_COST = 1e15


@dataclass(frozen=True)
class DecisionSaid:
    """What she decided about the sample at a position; `nonce` is the page's own name for this decision."""

    edition: str
    nonce: str
    position: int
    action: str
    label: int | None = None


@dataclass(frozen=True)
class UndoSaid:
    """Take the last decision back."""

    edition: str
    nonce: str


@dataclass(frozen=True)
class AnswerSaid:
    """Her answer to the offer with this hash."""

    offer: str
    accepted: bool


def decision_said(body: bytes) -> DecisionSaid:
    said = DecisionSaid(
        **_fields(body, {"edition": str, "nonce": str, "position": int, "action": str}, also={"label": int})
    )
    _require(NONCE.fullmatch(said.nonce) is not None and said.action in ACTIONS)
    return said


def undo_said(body: bytes) -> UndoSaid:
    said = UndoSaid(**_fields(body, {"edition": str, "nonce": str}))
    _require(NONCE.fullmatch(said.nonce) is not None)
    return said


def answer_said(body: bytes) -> AnswerSaid:
    return AnswerSaid(**_fields(body, {"offer": str, "accepted": bool}))


def cost_said(text: str | None) -> float | None:
    """A cost in an address; None where none is given."""
    if text is None:
        return None
    try:
        cost = float(text)
    except ValueError:
        cost = math.nan
    _require(0 <= cost <= LARGEST_COST)
    return cost


def _fields(body: bytes, needed: Mapping[str, type], also: Mapping[str, type] | None = None) -> dict[str, Any]:
    known = {**needed, **(also or {})}
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    _require(isinstance(said, dict) and needed.keys() <= said.keys() <= known.keys())
    _require(all(type(value) is known[name] for name, value in said.items()))
    return dict(said)


def _require(is_so: bool) -> None:
    if not is_so:
        raise InputError("this is not what the page sends.")
