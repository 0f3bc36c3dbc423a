"""Replies are not trusted: what a client sends is a report, or there is a reason why it is none. Looks at `messages`.

Weights come from the contract; nothing a reply says about itself is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, Message
from numpy.typing import NDArray

from truthfl.federation.protocol.messages import MODEL, ROUND

AnyArray = NDArray[Any]
Arrays = Mapping[str, AnyArray]

LARGEST_NUMBER = 1e6
HEADER_BYTES = 256
LONGEST_REASON = 300


def report_or_reason(
    reply: Message, common: Arrays, offer: str, round_: int, *, metrics: bool = False
) -> dict[str, AnyArray] | str:
    """The model in a reply to this round's question, or what is wrong with the reply.

    `common` is the model as it was sent; `metrics` lets one MetricRecord come with it.
    """
    if reply.has_error():
        return f"error: {str(reply.error.reason).strip()}"[:LONGEST_REASON]
    content = reply.content
    wanted = {MODEL, ROUND} | (set(content.metric_records) if metrics and len(content.metric_records) == 1 else set())
    if set(content.keys()) != wanted:
        return f"its records are {', '.join(sorted(map(repr, content.keys()))) or 'none'}"[:LONGEST_REASON]
    said, arrays = content.config_records.get(ROUND), content.array_records.get(MODEL)
    if said is None or arrays is None:
        return "its records are of another kind"
    if said.get("offer") != offer:
        return "it is for another offer"
    if said.get("round") != round_:
        return f"late: it is for round {said.get('round')!r}"[:LONGEST_REASON]
    if list(arrays) != list(common):
        return f"its arrays are {', '.join(map(repr, arrays)) or 'none'}"[:LONGEST_REASON]
    report: dict[str, AnyArray] = {}
    for name, sent in arrays.items():
        found = _array_or_reason(sent, common[name])
        if isinstance(found, str):
            return found
        report[name] = found
    if all(np.array_equal(report[name], common[name]) for name in common):
        return "empty: it is the model as it was sent"
    return report


def _array_or_reason(sent: Array, common: AnyArray) -> AnyArray | str:
    """Looked at before it is decoded, so that nothing large or executable is."""
    if len(sent.data) > common.nbytes + HEADER_BYTES:
        return f"oversized: {len(sent.data):,} bytes for an array of {common.nbytes:,}"
    if tuple(sent.shape) != common.shape:
        return f"its shape is {tuple(sent.shape)}, not {common.shape}"
    if sent.dtype != str(common.dtype):
        return f"its dtype is {sent.dtype}, not {common.dtype}"
    try:
        array = np.load(BytesIO(sent.data), allow_pickle=False)
    except Exception:  # whatever a stranger's bytes make NumPy raise
        return "its bytes are no array"
    if not isinstance(array, np.ndarray) or array.shape != common.shape or array.dtype != common.dtype:
        return "its bytes are another array than it says"
    if not np.isfinite(array).all():
        return "it has NaN or infinity"
    if np.abs(array).max(initial=0) > LARGEST_NUMBER and array.dtype.kind == "f":
        return f"it has a number beyond {LARGEST_NUMBER:,.0f}"
    return array
