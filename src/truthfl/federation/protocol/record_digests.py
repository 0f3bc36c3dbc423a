"""Digests of the arrays in a message, kept with the record so that nodes of one process hash the same bytes once."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from flwr.app import ArrayRecord, Message

from truthfl.federation.protocol.messages import MODEL, ROUND, model_in
from truthfl.federation.protocol.model_digest import model_digest
from truthfl.learning.model import Params

MARK_LENGTH = 16  # hexadecimal digits: a round of a thousand people has as many marks in the ledger
OF_BYTES, OF_NUMBERS = "_truthfl_digest_of_bytes", "_truthfl_digest_of_numbers"  # attributes, which do not travel


def array_bytes_digest(arrays: ArrayRecord) -> str:
    """A hash of the arrays as they travel: names, types, shapes and bytes."""

    def computed() -> str:
        combined = sha256()
        for name, dtype, shape, content in _parts(arrays):
            combined.update(f"{name}\0{dtype}\0{shape}\0{len(content)}\0".encode())
            combined.update(content)
        return combined.hexdigest()

    return _kept(arrays, OF_BYTES, computed)


def report_mark(report: Message) -> str:
    """A short hash of what changes the sum in a report: its arrays, and the locked shares of its own mask.

    Whoever answers a repeated round with another report can choose both, but not the first one's hash.
    """
    content = report.content
    shares = content.config_records[ROUND].get("shares", "")
    whole = f"{array_bytes_digest(content.array_records[MODEL])}\0{shares!s}"
    return sha256(whole.encode()).hexdigest()[:MARK_LENGTH]


def received_model(arrays: ArrayRecord) -> tuple[Params, str]:
    """The model in a training message, and the digest by which the ledger calls it."""
    params = model_in(arrays)
    return params, _kept(arrays, OF_NUMBERS, lambda: model_digest(params))


def _parts(arrays: ArrayRecord) -> list[tuple[Any, ...]]:
    return [(name, array.dtype, tuple(array.shape), array.data) for name, array in arrays.items()]


def _kept(arrays: ArrayRecord, name: str, compute: Callable[[], str]) -> str:
    """The digest that was kept if the record has what it was computed from, down to the bytes; else compute it."""
    parts, kept = _parts(arrays), vars(arrays).get(name)
    if kept is None or kept[0] != parts:
        kept = vars(arrays)[name] = parts, compute()
    return str(kept[1])
