"""Messages to nodes: their documents and models, digests, authentication codes, news; sending, and replies.

The key of the codes is derived from the agreement keys of both sides (`ledger.signing`), so the connection need not be
trusted. A code covers the sender, every field of the message's record and the bytes of its arrays. A sentence with a
form (`coded_text`) is sent with it, so a participant's page can write it in their language.

`ask_nodes` waits for the replies; `OpenQuestions` collects them later.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
    load_ssh_public_key,
)
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from truthfl.coded_text import CodedText
from truthfl.errors import InputError
from truthfl.learning.models.model import Params
from truthfl.ledger.canonical import canonical_bytes, read_writable_document
from truthfl.ledger.signing import AgreementKey, agreement_line, derived_key, normal_public_line, shared_secret

if TYPE_CHECKING:
    from truthfl.ledger.job_view import JobView


def model_digest(params: Params) -> str:
    """A hash of the model's numbers."""
    return sha256(np.ascontiguousarray(params, dtype="<f4").data).hexdigest()


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
    """A short hash of a report's parts that change the sum: its arrays, and the locked shares of its own mask.

    A participant who answers a repeated round with another report can choose both, but cannot reproduce the first hash.
    """
    content = report.content
    shares = content.config_records[ROUND].get("shares", "")
    whole = f"{array_bytes_digest(content.array_records[MODEL])}\0{shares!s}"
    return sha256(whole.encode()).hexdigest()[:MARK_LENGTH]


def received_model(arrays: ArrayRecord) -> tuple[Params, str]:
    """The model in a training message, and its digest in the ledger."""
    params = model_in(arrays)
    return params, _kept(arrays, OF_NUMBERS, lambda: model_digest(params))


def _parts(arrays: ArrayRecord) -> list[tuple[Any, ...]]:
    return [(name, array.dtype, tuple(array.shape), array.data) for name, array in arrays.items()]


def _kept(arrays: ArrayRecord, name: str, compute: Callable[[], str]) -> str:
    """The kept digest if the record has exactly the bytes from which it was computed; otherwise compute it."""
    parts, kept = _parts(arrays), vars(arrays).get(name)
    if kept is None or kept[0] != parts:
        kept = vars(arrays)[name] = parts, compute()
    return str(kept[1])


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
MAX_REPLY_LENGTH = 20_000  # characters, of a participant's document: an enrolment, an answer, a commitment


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

    Values that JSON allows and a ledger cannot keep are refused: half surrogate pairs, non-finite numbers.
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
    """Return the document in a participant's reply, which is short."""
    return document_in(message, MAX_REPLY_LENGTH)


def model_record(params: Params | NDArray[np.uint32]) -> ArrayRecord:
    """Return a model, or a masked report, as a record with one flat array."""
    record = ArrayRecord()  # a dict argument would copy every array
    record[PARAMS] = Array(params)
    return record


def model_in(record: ArrayRecord) -> Params:
    """Return the flat array of a record, without checks; clients use it for the server's model."""
    return np.array(record[PARAMS].numpy(), dtype=np.float32)


CODE = "mac"  # the field with the code
OPERATOR, PARTICIPANT = "operator", "participant"


def codes_with_participants(own: AgreementKey, view: JobView) -> dict[str, bytes]:
    """By client: the key of the codes between them and the operator, whose agreement key is `own`.

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
    """Whether the code among these fields is the sender's; true if there is no key."""
    if key is None:
        return True
    code = fields.get(CODE)
    others = {name: value for name, value in fields.items() if name != CODE}
    try:
        return isinstance(code, bytes) and hmac.compare_digest(code, _code(key, sender, others, arrays_digest))
    except InputError:  # the fields have values that no truthfl message has
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
    """Whether the code in a document is the sender's."""
    code = document.get(CODE)
    others = {name: value for name, value in document.items() if name != CODE}
    try:
        return isinstance(code, str) and hmac.compare_digest(
            code.encode(), _code(key, sender, others, "").hex().encode()
        )
    except (InputError, UnicodeEncodeError):  # the document has values that no truthfl message has
        return False


def _code(key: bytes, sender: str, fields: Mapping[str, Any], arrays_digest: str) -> bytes:
    text = canonical_bytes({"sender": sender, "arrays": arrays_digest, "fields": dict(fields)})
    return hmac.digest(key, text, "sha256")


def registrations(grid: Grid) -> dict[int, tuple[str, str]]:
    """By node id: the name and public key (one OpenSSH line) of each online node's registration."""
    return {node.node_id: (node.name, public_key_line(node.public_key)) for node in grid.get_nodes()}


def public_key_line(pem: bytes) -> str:
    """Convert a PEM public key to a normalized OpenSSH line; "" if it is not a key that truthfl makes."""
    try:
        key = load_pem_public_key(pem)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return ""
        return normal_public_line(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())
    except (ValueError, UnsupportedAlgorithm, InputError):
        return ""


def pem_of(line: str) -> bytes:
    """Convert an OpenSSH public key line to PEM."""
    return load_ssh_public_key(line.encode()).public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


NEWS_TIMEOUT = 10.0  # seconds
# The subject of a message, which tells a participant's page how long it matters; "" for as long as the job.
PAUSED, RESUMED, EXTENDED = "paused", "resumed", "extended"
LATE_LABELS, STOPPED, HELD, RECEIPTS = "late labels", "stopped", "held", "receipts"


def send_news(grid: Grid, nodes: Iterable[int], sentence: str, *, over: bool, about: str = "") -> None:
    """Send a sentence to these nodes and wait until they confirm it; `over` means that they receive nothing more."""
    ask_nodes(grid, news_messages(nodes, sentence, over=over, about=about), timeout=NEWS_TIMEOUT)


def news_messages(nodes: Iterable[int], sentence: str, *, over: bool, about: str = "") -> list[Message]:
    """The messages that tell these nodes a sentence."""
    document: dict[str, Any] = {"sentence": str(sentence), "over": over} | ({"about": about} if about else {})
    if isinstance(sentence, CodedText):
        document["message"] = sentence.form
    return [query_message(NEWS, node, document) for node in nodes]


POLL_SECONDS = 0.25
SECONDS_BETWEEN_LOOKS = 0.3  # at events that may end a wait for replies


def _all_of(nodes: set[int]) -> set[int]:
    return nodes


def ask_nodes(
    grid: Grid,
    messages: Iterable[Message],
    *,
    timeout: float,
    poll_seconds: float = POLL_SECONDS,
    still_awaited: Callable[[set[int]], set[int]] = _all_of,
) -> list[tuple[int, Message]]:
    """Send the messages; return (node id, reply) for each reply that arrived within `timeout` seconds.

    still_awaited  called every SECONDS_BETWEEN_LOOKS with the nodes that have not replied; returns those of them whose
                   replies are still waited for

    A reply may be an error, from the node or from Flower on behalf of a disconnected node. The source of such a reply
    is not reliable, so the node id is the destination of the message replied to; for a reply to an unknown message it
    is the reply's source. Nodes that did not reply in time are missing from the result.
    """
    sent = list(messages)
    message_ids = grid.push_messages(sent)
    node_of = {
        message_id: message.metadata.dst_node_id
        for message_id, message in zip(message_ids, sent, strict=True)
        if message_id
    }
    pending = dict.fromkeys(node_of)  # a dict, not a set: replies keep the order of the messages
    deadline, next_look = time.monotonic() + timeout, time.monotonic() + SECONDS_BETWEEN_LOOKS
    replies: list[tuple[int, Message]] = []
    while pending:
        for reply in grid.pull_messages(list(pending)):
            message_id = reply.metadata.reply_to_message_id
            pending.pop(message_id, None)
            replies.append((node_of.get(message_id, reply.metadata.src_node_id), reply))
        if pending:
            now = time.monotonic()
            if now >= min(deadline, next_look):
                next_look = now + SECONDS_BETWEEN_LOOKS
                awaited = still_awaited({node_of[one] for one in pending}) if now < deadline else set()
                given_up = [one for one in pending if node_of[one] not in awaited]
                _withdraw(grid, given_up)
                for message_id in given_up:
                    del pending[message_id]
            if pending:
                _wait(grid, list(pending), max(min(deadline, next_look) - now, 0.0), poll_seconds)
    return replies


class OpenQuestions:
    """Messages whose replies are collected later, without waiting."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._open: dict[str, tuple[int, float]] = {}  # by message id: the node, and until when a reply counts

    @property
    def nodes(self) -> set[int]:
        """The nodes that may still reply."""
        return {node for node, _ in self._open.values()}

    def send(self, messages: Iterable[Message], seconds: float) -> None:
        """Send messages whose replies count for this number of seconds."""
        sent = list(messages)
        if not sent:
            return
        until = time.monotonic() + seconds
        for message_id, message in zip(self.grid.push_messages(sent), sent, strict=True):
            if message_id:
                self._open[message_id] = message.metadata.dst_node_id, until

    def replies(self) -> list[tuple[int, Message]]:
        """(node id, reply) for the replies that have arrived since; late ones are abandoned."""
        if not self._open:
            return []
        arrived = []
        for reply in self.grid.pull_messages(list(self._open)):
            node, _ = self._open.pop(reply.metadata.reply_to_message_id, (reply.metadata.src_node_id, 0.0))
            arrived.append((node, reply))
        now = time.monotonic()
        late = [message_id for message_id, (_, until) in self._open.items() if until < now]
        _withdraw(self.grid, late)
        for message_id in late:
            del self._open[message_id]
        return arrived

    def wait(self, seconds: float) -> None:
        """Wait until all have replied or are too late, but no longer than this; the replies are dropped."""
        deadline = time.monotonic() + seconds
        self.replies()
        while self._open and (seconds_left := deadline - time.monotonic()) > 0:
            _wait(self.grid, list(self._open), seconds_left, POLL_SECONDS)
            self.replies()

    def wait_for_some(self, seconds: float) -> None:
        """Wait until there may be replies to collect, but no longer than this."""
        _wait(self.grid, list(self._open), seconds, min(seconds, POLL_SECONDS))


def _withdraw(grid: Grid, message_ids: list[str]) -> None:
    """Stop sending these messages; Flower's built-in grids cannot."""
    if message_ids and hasattr(grid, "withdraw"):
        grid.withdraw(message_ids)


def allow_replies_of(grid: Grid, model_bytes: int) -> None:
    """Allow replies to messages without a model to have one of this length; Flower's built-in grids have no limit."""
    if hasattr(grid, "allow_replies_of"):
        grid.allow_replies_of(model_bytes)


def _wait(grid: Grid, message_ids: list[str], seconds_left: float, poll_seconds: float) -> None:
    """Wait until there may be another reply; Flower's built-in grids cannot tell."""
    if hasattr(grid, "wait_for_replies"):
        grid.wait_for_replies(message_ids, seconds_left)
    else:
        time.sleep(poll_seconds)
