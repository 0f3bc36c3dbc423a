"""Replies are not trusted: what a client sends is a report, or there is a reason why it is none. Looks at `messages`.

Weights come from the contract; nothing a reply says about itself is used.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
from flwr.app import Array, Message

from truthfl.federation.messages import MODEL, ROUND
from truthfl.learning.model import Params

LARGEST_NUMBER = 1e6
HEADER_BYTES = 256
LONGEST_REASON = 300


def report_or_reason(reply: Message, common: Params, offer: str, round_: int) -> Params | str:
    """The model in a reply to this round's question, or what is wrong with the reply."""
    if reply.has_error():
        return f"error: {str(reply.error.reason).strip()}"[:LONGEST_REASON]
    content = reply.content
    if set(content.keys()) != {MODEL, ROUND}:
        return f"its records are {', '.join(sorted(map(repr, content.keys()))) or 'none'}"[:LONGEST_REASON]
    said, arrays = content.config_records.get(ROUND), content.array_records.get(MODEL)
    if said is None or arrays is None:
        return "its records are of another kind"
    if said.get("offer") != offer:
        return "it is for another offer"
    if said.get("round") != round_:
        return f"late: it is for round {said.get('round')!r}"[:LONGEST_REASON]
    if list(arrays) != ["params"]:
        return f"its arrays are {', '.join(map(repr, arrays)) or 'none'}"[:LONGEST_REASON]
    found = _array(arrays["params"], common)
    return found if isinstance(found, str) else _numbers_or_reason(found, common)


def _array(sent: Array, common: Params) -> Params | str:
    """Looked at before it is decoded, so that nothing large or executable is."""
    if len(sent.data) > common.nbytes + HEADER_BYTES:
        return f"oversized: {len(sent.data):,} bytes for a model of {common.nbytes:,}"
    if tuple(sent.shape) != common.shape:
        return f"its shape is {tuple(sent.shape)}, not {common.shape}"
    if sent.dtype != "float32":
        return f"its dtype is {sent.dtype}, not float32"
    try:
        array = np.load(BytesIO(sent.data), allow_pickle=False)
    except Exception:  # whatever a stranger's bytes make NumPy raise
        return "its bytes are no array"
    if not isinstance(array, np.ndarray) or array.shape != common.shape or array.dtype != common.dtype:
        return "its bytes are another array than it says"
    return array


def _numbers_or_reason(report: Params, common: Params) -> Params | str:
    if not np.isfinite(report).all():
        return "it has NaN or infinity"
    if np.abs(report).max(initial=0.0) > LARGEST_NUMBER:
        return f"it has a number beyond {LARGEST_NUMBER:,.0f}"
    if np.array_equal(report, common):
        return "empty: it is the model as it was sent"
    return report
