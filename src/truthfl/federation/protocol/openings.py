"""Validation of the clients' replies in an audition.

Replies are not trusted: only the commitment, and the salt and the model that match it, are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Message

from truthfl.errors import InputError
from truthfl.federation.protocol.messages import DOCUMENT, MODEL, PARAMS, reply_in
from truthfl.federation.protocol.reports import array_or_reason
from truthfl.learning.model import Params
from truthfl.ledger.commitment import SECRET_BYTES, audition_commitment
from truthfl.texts import plain

HEX_DIGITS = frozenset("0123456789abcdef")


@dataclass(frozen=True, eq=False)
class Opened:
    """The salt and the model of an audition, as committed to."""

    salt: str
    model: Params


def commitment_or_reason(reply: Message) -> tuple[str | None, str | None]:
    """The commitment in a reply and None, or None and the reason why there is none."""
    document = _document_or_reason(reply)
    if isinstance(document, str):
        return None, document
    commitment = document.get("commitment")
    if not _is_hash(commitment):
        return None, "its commitment is no hash"
    return str(commitment), None


def opening_or_reason(reply: Message, start: Params, offer: str, commitment: str) -> Opened | str:
    """The salt and the model in a reply, or the reason why the reply is refused.

    start       the public start of training, like which a model must be, but not the same
    offer       the hash of the client's offer
    commitment  what she committed herself to
    """
    document = _document_or_reason(reply)
    if isinstance(document, str):
        return document
    if set(reply.content.keys()) != {DOCUMENT, MODEL}:
        return plain(f"its records are {', '.join(sorted(map(repr, reply.content.keys())))}")
    if document.get("offer") != offer:
        return "it is for another offer"
    salt, arrays = document.get("salt"), reply.content.array_records.get(MODEL)
    if not _is_hash(salt):
        return "its salt is not 32 bytes"
    if arrays is None or list(arrays) != [PARAMS]:
        return "its records are of another kind"
    model = array_or_reason(arrays[PARAMS], start)
    if isinstance(model, str):
        return model
    if audition_commitment(offer, str(salt), model) != commitment:
        return "it is another model than the one committed to"
    if np.array_equal(model, start):
        return "empty: it is the model from which training starts"
    return Opened(str(salt), model)


def _document_or_reason(reply: Message) -> dict[str, Any] | str:
    if reply.has_error():
        return plain(f"error: {str(reply.error.reason).strip()}")
    try:
        return reply_in(reply)
    except InputError as error:
        return plain(str(error).rstrip("."))


def _is_hash(value: object) -> bool:
    """Whether it is a text of 32 bytes in hexadecimal."""
    return isinstance(value, str) and len(value) == 2 * SECRET_BYTES and set(value) <= HEX_DIGITS
