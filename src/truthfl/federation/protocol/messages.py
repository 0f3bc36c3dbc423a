"""How the protocol's papers and models travel in Flower's messages. Looks at Flower and the ledger's `canonical`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from truthfl.errors import InputError
from truthfl.learning.model import Params
from truthfl.ledger.canonical import canonical_bytes, read_document

ENROL, OFFER, LABELS, RECEIPT = "truthfl_enrol", "truthfl_offer", "truthfl_labels", "truthfl_receipt"
NEWS = "truthfl_news"
PAPER, MODEL, ROUND, PARAMS = "truthfl", "arrays", "truthfl-round", "params"
LARGEST_PAPER = 16_000_000  # characters


def question(action: str, node: int, document: Mapping[str, Any]) -> Message:
    """A question of the protocol to one node."""
    return Message(paper_record(document), dst_node_id=node, message_type=f"{MessageType.QUERY}.{action}")


def paper_record(document: Mapping[str, Any]) -> RecordDict:
    return RecordDict({PAPER: ConfigRecord({"document": canonical_bytes(document).decode()})})


def paper_in(message: Message) -> dict[str, Any]:
    """The document that a message carries; a sentence where it carries none."""
    record = message.content.get(PAPER)
    text = record.get("document") if isinstance(record, ConfigRecord) else None
    if not isinstance(text, str):
        raise InputError("the message carries no document.")
    if len(text) > LARGEST_PAPER:
        raise InputError(f"the document has {len(text):,} characters; at most {LARGEST_PAPER:,} are read.")
    return read_document(text)


def model_record(params: Params) -> ArrayRecord:
    """A model as one flat array."""
    return ArrayRecord({PARAMS: Array(params)})


def model_in(record: ArrayRecord) -> Params:
    """The flat array back; the sender is trusted to have sent one (the server, by a client)."""
    return np.array(record[PARAMS].numpy(), dtype=np.float32)
