"""Authentication codes of training messages and reports: HMAC-SHA256 with a key that operator and participant share.

The key is derived from the agreement keys of both (`ledger.agreement_keys`), so the connection that a message came by
need not be trusted. The code covers who speaks, every field of the message's record and the bytes of its arrays.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from truthfl.errors import InputError
from truthfl.federation.protocol.messages import DOCUMENT, MODEL
from truthfl.ledger.agreement_keys import AgreementKey, agreement_line, derived_key, shared_secret
from truthfl.ledger.canonical import canonical_bytes

if TYPE_CHECKING:
    from truthfl.ledger.job_view import JobView

CODE = "mac"  # the field with the code
OPERATOR, PARTICIPANT = "operator", "participant"


def codes_with_participants(own: AgreementKey, view: JobView) -> dict[str, bytes]:
    """By client: the key of the codes between her and the operator, whose agreement key is `own`.

    Empty before there is a contract.
    """
    agreement = view.agreement
    if agreement is None:
        return {}
    if agreement.terms.agreement_key != agreement_line(own):
        raise InputError("the job's offers were made with another agreement key than the one in the operator's folder.")
    return {
        offer.client.name: code_key(own, view.answer_to(offer).document["document"]["agreement_key"], offer.hash)
        for offer in agreement.offers
    }


def code_key(own: AgreementKey, other: str, offer_hash: str) -> bytes:
    """The key of the codes between operator and participant under this offer; `other` is the other's public key."""
    return derived_key(shared_secret(own, other), "truthfl code", offer_hash)


def with_code(key: bytes | None, sender: str, fields: Mapping[str, Any], arrays_digest: str) -> dict[str, Any]:
    """The fields with their code; without one if there is no key."""
    return dict(fields) if key is None else {**fields, CODE: _code(key, sender, fields, arrays_digest)}


def has_code(key: bytes | None, sender: str, fields: Mapping[str, Any], arrays_digest: str) -> bool:
    """Whether the code among these fields is that of the sender; true if there is no key."""
    if key is None:
        return True
    code = fields.get(CODE)
    others = {name: value for name, value in fields.items() if name != CODE}
    try:
        return isinstance(code, bytes) and hmac.compare_digest(code, _code(key, sender, others, arrays_digest))
    except InputError:  # the fields hold what no message of ours holds
        return False


def coded_training_message(
    key: bytes | None, node: int, arrays: ArrayRecord, arrays_digest: str, fields: Mapping[str, Any]
) -> Message:
    """A training message with these arrays and fields, and with the operator's code if there is a key."""
    record = ConfigRecord(with_code(key, OPERATOR, fields, arrays_digest))
    return Message(RecordDict({MODEL: arrays, DOCUMENT: record}), dst_node_id=node, message_type=MessageType.TRAIN)


def with_document_code(key: bytes, sender: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a query or of its answer with a code."""
    return {**document, CODE: _code(key, sender, document, "").hex()}


def has_document_code(key: bytes, sender: str, document: Mapping[str, Any]) -> bool:
    """Whether the code in a document is that of the sender."""
    code = document.get(CODE)
    others = {name: value for name, value in document.items() if name != CODE}
    try:
        return isinstance(code, str) and hmac.compare_digest(
            code.encode(), _code(key, sender, others, "").hex().encode()
        )
    except (InputError, UnicodeEncodeError):  # the document holds what no message of ours holds
        return False


def _code(key: bytes, sender: str, fields: Mapping[str, Any], arrays_digest: str) -> bytes:
    text = canonical_bytes({"sender": sender, "arrays": arrays_digest, "fields": dict(fields)})
    return hmac.digest(key, text, "sha256")
