"""Validation of the clients' replies in a round.

Replies are not trusted: only the arrays of a valid report are used; weights come from the contract.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from numpy.typing import NDArray

from truthfl.federation.protocol.message_codes import PARTICIPANT, has_code
from truthfl.federation.protocol.messages import MODEL, ROUND
from truthfl.federation.protocol.record_digests import array_bytes_digest
from truthfl.learning.array_files import array_of_npy
from truthfl.texts import plain

AnyArray = NDArray[Any]
Arrays = Mapping[str, AnyArray]

LARGEST_NUMBER = 1e6
HEADER_BYTES = 256


def report_or_reason(
    reply: Message,
    common: Arrays,
    asked: Mapping[str, str | int],
    *,
    bound: float = 0.0,
    code_key: bytes | None = None,
) -> dict[str, AnyArray] | str:
    """Return the model in a reply, or the reason why the reply is rejected.

    common    the model as it was sent to the clients
    asked     what the training message says of the round: offer and round must come back
    bound     the largest length (L2 norm) of a report's change; 0 for none
    code_key  of the code that the reply must have; None if the offer has no agreement key
    """
    if reply.has_error():
        return plain(f"error: {str(reply.error.reason).strip()}")
    content = reply.content
    if set(content.keys()) != {MODEL, ROUND}:
        return plain(f"its records are {', '.join(sorted(map(repr, content.keys()))) or 'none'}")
    assignment, arrays = content.get(ROUND), content.get(MODEL)
    if not isinstance(assignment, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        return "its records are of another kind"
    if assignment.get("offer") != asked["offer"]:
        return "it is for another offer"
    if assignment.get("round") != asked["round"]:
        return plain(f"late: it is for round {assignment.get('round')!r}")
    if list(arrays) != list(common):
        return plain(f"its arrays are {', '.join(map(repr, arrays)) or 'none'}")
    if not has_code(code_key, PARTICIPANT, assignment, "" if code_key is None else array_bytes_digest(arrays)):
        return "not authentic: its code is not made with the key that she agreed on"
    report: dict[str, AnyArray] = {}
    for name, received in arrays.items():
        array = array_or_reason(received, common[name])
        if isinstance(array, str):
            return array
        report[name] = array
    if all(np.array_equal(report[name], common[name]) for name in common):
        return "empty: it is the model as it was sent"
    if bound:
        length = change_length(report, common)
        if length > bound:
            return f"too long: its change has length {length:.3g}; honest ones are beyond {bound:.3g} once in a million"
    return report


def change_length(report: Arrays, common: Arrays) -> float:
    """The L2 norm of the change of all parameters that are not whole numbers."""
    floats = (name for name in common if common[name].dtype.kind == "f")
    changes = (np.subtract(report[name], common[name], dtype=np.float64) for name in floats)
    return math.sqrt(math.fsum(float(np.square(change, out=change).sum()) for change in changes))


def array_or_reason(received: Array, common: AnyArray) -> AnyArray | str:
    """Check size, shape and dtype before decoding, so that no large or executable content is decoded."""
    if len(received.data) > common.nbytes + HEADER_BYTES:
        return f"oversized: {len(received.data):,} bytes for an array of {common.nbytes:,}"
    if tuple(received.shape) != common.shape:
        return f"its shape is {plain(tuple(received.shape), 60)}, not {common.shape}"
    if received.dtype != str(common.dtype):
        return f"its dtype is {plain(received.dtype, 30)}, not {common.dtype}"
    try:
        array = array_of_npy(received.data)
    except Exception:  # NumPy may raise anything for untrusted bytes
        return "its bytes are no array"
    if array.shape != common.shape or array.dtype != common.dtype:
        return "its bytes are another array than it says"
    largest = np.abs(array).max(initial=0)  # NaN if there is one
    if not np.isfinite(largest):
        return "it has NaN or infinity"
    if largest > LARGEST_NUMBER and array.dtype.kind == "f":
        return f"it has a number beyond {LARGEST_NUMBER:,.0f}"
    return array
