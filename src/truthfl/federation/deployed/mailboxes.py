"""Messages that wait for nodes, their replies, and a Flower Grid made of both.

The job's thread puts messages and waits for replies. The thread that serves nodes' requests delivers messages and takes
replies. A message stays until it is answered or withdrawn. Messages are numbered: a node that reconnects or restarts
asks for those after the last number it has. A node's id follows from its key, so it stays the same.

A reply may not be longer than its message allows. All replies that are being read, or that the job has not taken yet,
share one memory budget.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import Any
from uuid import uuid4

from flwr.app import Error, Message

from truthfl.errors import InputError
from truthfl.federation.protocol.messages import pem_of
from truthfl.flower_patches import (
    MESSAGE_UNAVAILABLE,
    NODE_UNAVAILABLE,
    NodeInfo,
    OneRunGrid,
    message_from_bytes,
    set_message_id,
    set_origin,
)
from truthfl.ledger.signing import normal_public_line

SERVER_NODE_ID = 1  # as in Flower


@dataclass(frozen=True)
class KnownNode:
    """A node that may connect: its id, its public key (one OpenSSH line) and the name it is registered for."""

    node_id: int
    public_key: str
    name: str


def node_id_of(public_key: str) -> int:
    """The id of the node with this public key: 63 bits of a hash."""
    number = int.from_bytes(sha256(public_key.encode()).digest()[:8], "big") >> 1
    return number if number > SERVER_NODE_ID else number + 2


class NodeRegistry:
    """Registered nodes. All methods may be called from any thread.

    closed   whether only registered keys are admitted; otherwise any key is, without a name
    look_up  called with a key that has no name here; returns the name to admit it under, "" for none, or None
    """

    def __init__(self, *, closed: bool, look_up: Callable[[str], str | None] = lambda _: None) -> None:
        self.closed, self.look_up = closed, look_up
        self._nodes: dict[int, KnownNode] = {}
        self._lock = threading.Lock()

    def register(self, public_key: str, name: str) -> KnownNode:
        """Admit a key under this name instead of its earlier key; raise InputError if another name has the key."""
        line = normal_public_line(public_key)
        node = KnownNode(node_id_of(line), line, name)
        with self._lock:
            earlier = self._nodes.setdefault(node.node_id, node)
            if not earlier.name:
                earlier = self._nodes[node.node_id] = node
            if name and earlier == node:
                self._nodes = {own: one for own, one in self._nodes.items() if one.name != name or one == node}
        if earlier != node:
            raise InputError(f"{name} and {earlier.name} have the same key; each participant needs their own.")
        return node

    def remove(self, name: str) -> list[KnownNode]:
        """Stop admitting this name's keys; return what was removed."""
        with self._lock:
            removed = [node for node in self._nodes.values() if node.name == name]
            for node in removed:
                del self._nodes[node.node_id]
        return removed

    def find(self, public_key: str) -> KnownNode | None:
        """The node with this key; None if it is not admitted."""
        with self._lock:
            known = self._nodes.get(node_id_of(public_key))
        if known is not None and (known.name or not self.closed):
            return known
        name = self.look_up(public_key) if self.closed else ""
        return None if name is None else self.register(public_key, name)

    def of_id(self, node_id: int) -> KnownNode | None:
        with self._lock:
            return self._nodes.get(node_id)


GRACE_SECONDS = 5.0  # without a request of its own, a node counts as connected for this long,
MOST_HELD_BYTES = 256_000_000  # of replies; a longer reply is read alone
GRACE_SECONDS_PER_NODE = 0.01  # plus the time that the requests of all other nodes may take


@dataclass(frozen=True)
class Reply:
    """The bytes of a node's reply, and the seconds since the message was put."""

    content: bytes
    seconds: float


@dataclass(eq=False)
class _Pending:
    """An unanswered message, with the greatest length of its reply in bytes."""

    message_id: str
    message: Any
    put_at: float
    most_bytes: int


@dataclass(eq=False)
class _Mailbox:
    """One node's messages by number, the time of its last request, its waiting requests, and whom to wake."""

    pending: dict[int, _Pending] = field(default_factory=dict)
    last_request: float = float("-inf")
    waiting: int = 0
    wake: set[Callable[[], None]] = field(default_factory=set)


class Mailboxes:
    """The mailboxes of all nodes, by node id. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._boxes: dict[int, _Mailbox] = {}
        self._place: dict[str, tuple[int, int]] = {}  # by message id: node, number
        self._replies: dict[str, Reply] = {}
        self._numbers = count(1)
        self.delivered_bytes = self.received_bytes = 0
        self.held_bytes = 0  # of replies that have arrived, or for which room is kept while they are read
        self.departures = 0  # how often a node announced that it leaves

    def put(self, node: int, message_id: str, message: Any, most_bytes: int) -> None:
        """Put a message for a node, with the greatest length of its reply in bytes."""
        with self._changed:
            box, number = self._box(node), next(self._numbers)
            box.pending[number] = _Pending(message_id, message, time.monotonic(), most_bytes)
            self._place[message_id] = (node, number)
            wake = tuple(box.wake)
        for call in wake:
            call()

    def next_after(self, node: int, number: int) -> tuple[int, Any] | None:
        """The node's first message after this number, with its own number; None if there is none."""
        with self._changed:
            pending = self._box(node).pending
            return next(((own, one.message) for own, one in pending.items() if own > number), None)

    def most_bytes(self, node: int, message_id: str) -> int:
        """How long a node's reply to this message may be; 0 if no message with this id waits for its answer."""
        with self._changed:
            place = self._place.get(message_id)
            return 0 if place is None or place[0] != node else self._box(node).pending[place[1]].most_bytes

    def make_room(self, length: int) -> bool:
        """Keep room for a reply that is being read; False if the other replies take too much room."""
        with self._changed:
            if self.held_bytes and self.held_bytes + length > MOST_HELD_BYTES:
                return False
            self.held_bytes += length
            return True

    def give_room_back(self, length: int) -> None:
        """Release the room of a reply that has been read or will not come."""
        with self._changed:
            self.held_bytes -= length

    def put_reply(self, node: int, message_id: str, content: bytes) -> bool:
        """Take a node's reply; return False if no message with this id waits for this node's answer."""
        with self._changed:
            place = self._place.get(message_id)
            if place is None or place[0] != node:
                return False
            del self._place[message_id]
            pending = self._box(node).pending.pop(place[1])
            self._replies[message_id] = Reply(content, time.monotonic() - pending.put_at)
            self.received_bytes += len(content)
            self.held_bytes += len(content)
            self._changed.notify_all()
            return True

    def take_replies(self, message_ids: Iterable[str]) -> dict[str, Reply]:
        """Remove and return the replies to these messages that have arrived, by message id."""
        with self._changed:
            taken = {one: self._replies.pop(one) for one in message_ids if one in self._replies}
            self.held_bytes -= sum(len(reply.content) for reply in taken.values())
            return taken

    def lost(self, message_ids: Iterable[str]) -> list[str]:
        """The unanswered messages among these whose nodes are not connected."""
        with self._changed:
            connected = self._connected()
            return [one for one in message_ids if one in self._place and self._place[one][0] not in connected]

    def withdraw(self, message_ids: Iterable[str]) -> None:
        """Forget these messages and their replies."""
        with self._changed:
            for message_id in message_ids:
                reply = self._replies.pop(message_id, None)
                self.held_bytes -= 0 if reply is None else len(reply.content)
                place = self._place.pop(message_id, None)
                if place is not None:
                    del self._box(place[0]).pending[place[1]]

    def wait_for_reply(self, message_ids: Collection[str], seconds: float) -> None:
        """Wait until one of these messages has a reply or a node disconnects, but no longer than this."""
        with self._changed:
            if self._replies.keys().isdisjoint(message_ids):
                self._changed.wait(seconds)

    def begin_waiting(self, node: int, wake: Callable[[], None]) -> None:
        """Note a node's request that waits for messages; `wake` is called, from any thread, when one is put."""
        with self._changed:
            box = self._box(node)
            box.waiting += 1
            box.last_request = time.monotonic()
            box.wake.add(wake)

    def end_waiting(self, node: int, wake: Callable[[], None]) -> None:
        """Note that this request is over."""
        with self._changed:
            box = self._box(node)
            box.waiting -= 1
            if box.last_request > float("-inf"):  # otherwise it has announced that it leaves
                box.last_request = time.monotonic()
            box.wake.discard(wake)

    def wake_all(self) -> None:
        """Wake all requests that wait."""
        with self._changed:
            calls = [call for box in self._boxes.values() for call in box.wake]
        for call in calls:
            call()

    def disconnect(self, node: int) -> None:
        """Note that a node left."""
        with self._changed:
            self._box(node).last_request = float("-inf")
            self.departures += 1
            self._changed.notify_all()

    def connected(self) -> set[int]:
        """The nodes that are connected."""
        with self._changed:
            return self._connected()

    def is_waiting(self, node: int) -> bool:
        """Whether a request of this node waits for messages now."""
        with self._changed:
            return self._box(node).waiting > 0

    def _connected(self) -> set[int]:
        earliest = time.monotonic() - GRACE_SECONDS - GRACE_SECONDS_PER_NODE * len(self._boxes)
        return {node for node, box in self._boxes.items() if box.waiting or box.last_request >= earliest}

    def _box(self, node: int) -> _Mailbox:
        return self._boxes.setdefault(node, _Mailbox())


LOST_CHECK_SECONDS = 1.0
DISCONNECTED = "the node is not connected"
DOCUMENT_BYTES = 128_000  # of a reply, without its arrays


class MailboxGrid(OneRunGrid):
    """A grid with the nodes of a registry.

    sent           by message id: messages without a reply
    reply_seconds  by node id: how long its last reply took
    model_bytes    the length of models that are sent in reply to a message without a model
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
        """The replies that arrived, and error replies for nodes that disconnected."""
        asked = list(message_ids)
        arrived = self.mailboxes.take_replies(asked)
        for message_id, reply in arrived.items():
            self.reply_seconds[self.sent[message_id].metadata.dst_node_id] = reply.seconds
        replies = [self._reply(message_id, reply.content) for message_id, reply in arrived.items()]
        lost = self._lost(one for one in asked if one not in arrived)
        return replies + [self._error(one, NODE_UNAVAILABLE, DISCONNECTED) for one in lost]

    def _lost(self, message_ids: Iterable[str]) -> list[str]:
        """Withdraw and return messages to nodes that are not connected.

        This happens at once after new messages and when a node has left, and otherwise at intervals. With many nodes, a
        check with every reply would take longer than everything else.
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
        """Stop sending these messages, and expect no replies to them."""
        withdrawn = list(message_ids)
        self.mailboxes.withdraw(withdrawn)
        for message_id in withdrawn:
            self.sent.pop(message_id, None)

    def allow_replies_of(self, model_bytes: int) -> None:
        """Allow replies to messages without arrays to contain models of this length."""
        self.model_bytes = model_bytes

    def _most_reply_bytes(self, message: Message) -> int:
        """How long the reply to a message may be: its arrays have the same length, or it contains an expected model."""
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
