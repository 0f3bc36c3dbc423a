"""`MailboxGrid`: a Flower Grid whose nodes fetch their messages from `Mailboxes`.

A reply may have a short document, and the arrays that the message lets expect; nothing longer is read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from uuid import uuid4

from flwr.app import Error, Message

from truthfl.errors import InputError
from truthfl.federation.deployed.mailboxes import Mailboxes
from truthfl.federation.deployed.node_registry import SERVER_NODE_ID, NodeRegistry
from truthfl.federation.protocol.node_keys import pem_of
from truthfl.flower_patches import (
    MESSAGE_UNAVAILABLE,
    NODE_UNAVAILABLE,
    NodeInfo,
    OneRunGrid,
    message_from_bytes,
    set_message_id,
    set_origin,
)

LOST_CHECK_SECONDS = 1.0
DISCONNECTED = "the node is not connected"
DOCUMENT_BYTES = 128_000  # of a reply, besides arrays


class MailboxGrid(OneRunGrid):
    """A grid with the nodes of a registry.

    sent           by message id: messages without a reply
    reply_seconds  by node id: how long its last reply took
    model_bytes    of models that are sent in reply to a message without one
    """

    def __init__(self, mailboxes: Mailboxes, registry: NodeRegistry) -> None:
        super().__init__(SERVER_NODE_ID)
        self.mailboxes, self.registry, self.model_bytes = mailboxes, registry, 0
        self.sent: dict[str, Message] = {}
        self.reply_seconds: dict[int, float] = {}
        self._lost_check_at, self._departures = 0.0, 0

    def get_node_ids(self) -> Iterable[int]:
        return [node for node in sorted(self.mailboxes.connected()) if self.registry.of_id(node) is not None]

    def get_nodes(self) -> Iterable[NodeInfo]:
        """The connected nodes with names and keys."""
        known = [self.registry.of_id(node) for node in self.get_node_ids()]
        return [
            NodeInfo(node_id=node.node_id, name=node.name, public_key=pem_of(node.public_key))
            for node in known
            if node is not None
        ]

    @property
    def bytes_so_far(self) -> tuple[int, int]:
        """The bytes of all messages that were delivered, and of all replies."""
        return self.mailboxes.delivered_bytes, self.mailboxes.received_bytes

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        message_ids = []
        self._lost_check_at = 0.0
        for message in messages:
            message_id = uuid4().hex
            set_message_id(message, message_id)
            self.sent[message_id] = message
            self.mailboxes.put(message.metadata.dst_node_id, message_id, message, self._most_reply_bytes(message))
            message_ids.append(message_id)
        return message_ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that arrived, and error replies in the name of nodes that disconnected."""
        asked = list(message_ids)
        arrived = self.mailboxes.take_replies(asked)
        for message_id, reply in arrived.items():
            self.reply_seconds[self.sent[message_id].metadata.dst_node_id] = reply.seconds
        replies = [self._reply(message_id, reply.content) for message_id, reply in arrived.items()]
        lost = self._lost(one for one in asked if one not in arrived)
        return replies + [self._error(one, NODE_UNAVAILABLE, DISCONNECTED) for one in lost]

    def _lost(self, message_ids: Iterable[str]) -> list[str]:
        """Withdraw and return messages to nodes that are not connected.

        After new messages and when a node has left they are looked for at once, else only now and then: with many nodes
        it would take longer than all else to do so with every reply.
        """
        now, departures = time.monotonic(), self.mailboxes.departures
        if now < self._lost_check_at and departures == self._departures:
            return []
        self._lost_check_at, self._departures = now + LOST_CHECK_SECONDS, departures
        lost = self.mailboxes.lost(message_ids)
        self.mailboxes.withdraw(lost)
        return lost

    def wait_for_replies(self, message_ids: Collection[str], seconds: float) -> None:
        """Wait until `pull_messages` may have something to return, but no longer than this."""
        self.mailboxes.wait_for_reply(message_ids, min(seconds, LOST_CHECK_SECONDS))

    def withdraw(self, message_ids: Iterable[str]) -> None:
        """Send these messages no more, and expect no replies to them."""
        withdrawn = list(message_ids)
        self.mailboxes.withdraw(withdrawn)
        for message_id in withdrawn:
            self.sent.pop(message_id, None)

    def allow_replies_of(self, model_bytes: int) -> None:
        """Let replies to messages without arrays have models of this length."""
        self.model_bytes = model_bytes

    def _most_reply_bytes(self, message: Message) -> int:
        """How long the reply to a message may be: it has arrays of the same length, or a model that is awaited."""
        arrays = sum(len(array.data) for record in message.content.array_records.values() for array in record.values())
        return DOCUMENT_BYTES + max(arrays, self.model_bytes)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        pending = list(self.push_messages(messages))
        replies: list[Message] = []
        while pending:
            arrived = list(self.pull_messages(pending))
            answered = {reply.metadata.reply_to_message_id for reply in arrived}
            replies += arrived
            pending = [one for one in pending if one not in answered]
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                break
            if pending:
                self.wait_for_replies(pending, seconds_left)
        self.withdraw(pending)
        return replies

    def _reply(self, message_id: str, content: bytes) -> Message:
        try:
            reply = message_from_bytes(content, DOCUMENT_BYTES)
        except InputError as error:
            return self._error(message_id, MESSAGE_UNAVAILABLE, str(error))
        node = self.sent.pop(message_id).metadata.dst_node_id
        set_origin(reply, node, message_id)
        return reply

    def _error(self, message_id: str, code: int, reason: str) -> Message:
        return Message(Error(code, reason), reply_to=self.sent.pop(message_id))
