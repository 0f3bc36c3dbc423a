"""Documents and models in Flower messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.model import Params
from truthfl.ledger.canonical import canonical_bytes, read_writable_document

# Actions of query messages.
ENROL, OFFER, LABELS, RECEIPT = "truthfl_enrol", "truthfl_offer", "truthfl_labels", "truthfl_receipt"
AUDITION_COMMIT, AUDITION_OPEN = "truthfl_audition_commit", "truthfl_audition_open"
AUDITION_ARRIVED, NEWS = "truthfl_audition_arrived", "truthfl_news"
FINAL = "truthfl_final"
EXAMPLES = "truthfl_examples"
MASK_TERMS, MASK_LIST = "truthfl_mask_terms", "truthfl_mask_list"
MASK_KEYS, MASK_SHARES = "truthfl_mask_keys", "truthfl_mask_shares"
# Names of records in a message; PARAMS is the name of the one array in the record MODEL.
DOCUMENT, MODEL, ROUND, PARAMS = "truthfl", "arrays", "truthfl-round", "params"
ECHOED = ("offer", "round")  # fields of a training message that the report repeats
MAX_DOCUMENT_LENGTH = 16_000_000  # characters, of an offer or a receipt
MAX_REPLY_LENGTH = 20_000  # characters, of what a participant says: her enrolment, an answer, a commitment


def query_message(action: str, node: int, document: Mapping[str, Any]) -> Message:
    """Return a query message with this document to one node."""
    return query_text_message(action, node, canonical_bytes(document).decode())


def query_text_message(action: str, node: int, text: str) -> Message:
    """Return a query message to one node with the document whose canonical text this is."""
    return Message(text_record(text), dst_node_id=node, message_type=f"{MessageType.QUERY}.{action}")


def document_record(document: Mapping[str, Any]) -> RecordDict:
    return text_record(canonical_bytes(document).decode())


def text_record(text: str) -> RecordDict:
    return RecordDict({DOCUMENT: ConfigRecord({"document": text})})


def document_in(message: Message, longest: int = MAX_DOCUMENT_LENGTH) -> dict[str, Any]:
    """Return the document in a message; raise InputError if there is none, or one of more than `longest` characters.

    What JSON can spell and no ledger can keep is refused: halves of surrogate pairs, numbers that are not finite.
    """
    return read_writable_document(text_in(message, longest))[0]


def text_in(message: Message, longest: int = MAX_DOCUMENT_LENGTH) -> str:
    """Return the text of the document in a message, which is untrusted; errors are those of `document_in`."""
    record = message.content.get(DOCUMENT)
    text = record.get("document") if isinstance(record, ConfigRecord) else None
    if not isinstance(text, str):
        raise InputError("the message carries no document.")
    if len(text) > longest:
        raise InputError(f"the document has {len(text):,} characters; at most {longest:,} are read.")
    return text


def reply_in(message: Message) -> dict[str, Any]:
    """Return the document in a participant's reply, which is a short one."""
    return document_in(message, MAX_REPLY_LENGTH)


def model_record(params: Params | NDArray[np.uint32]) -> ArrayRecord:
    """Return a model, or a masked report, as a record with one flat array."""
    record = ArrayRecord()  # given a dict, it would make every array twice
    record[PARAMS] = Array(params)
    return record


def model_in(record: ArrayRecord) -> Params:
    """Return the flat array of a record, without checks; clients use it for the server's model."""
    return np.array(record[PARAMS].numpy(), dtype=np.float32)
