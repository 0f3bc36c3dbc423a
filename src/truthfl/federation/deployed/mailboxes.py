"""`Mailboxes`: messages that wait for nodes, and the nodes' replies, in the memory of the server's process.

The job's thread puts messages and waits for replies; the thread that serves nodes' requests delivers and takes them.
A message stays until it is answered or withdrawn, and each has a number: a node that lost its connection, or was
started again, asks for what comes after the last number it has. With it stands how long its reply may be; all replies
that are being read, or that nobody has taken yet, have one budget of memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

GRACE_SECONDS = 5.0  # without a request of its own, a node counts as connected for this long,
MOST_HELD_BYTES = 256_000_000  # of replies; one that is longer is read alone
GRACE_SECONDS_PER_NODE = 0.01  # and for so much longer as the requests of all others may take the server


@dataclass(frozen=True)
class Reply:
    """The bytes of a node's reply, and the seconds since the message was put."""

    content: bytes
    seconds: float


@dataclass(eq=False)
class _Pending:
    """A message that is not answered; its reply may have so many bytes."""

    message_id: str
    message: Any
    put_at: float
    most_bytes: int


@dataclass(eq=False)
class _Mailbox:
    """Of one node: messages by number, when it last sent a request, how many of its requests wait, whom to wake."""

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
        self.held_bytes = 0  # of replies that are there, or for which there is room while they are read
        self.departures = 0  # how often a node said that it left

    def put(self, node: int, message_id: str, message: Any, most_bytes: int) -> None:
        """Let a message wait for a node, whose reply may have so many bytes."""
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
        """How long a node's reply to this message may be; 0 if no message of this id waits for an answer of it."""
        with self._changed:
            place = self._place.get(message_id)
            return 0 if place is None or place[0] != node else self._box(node).pending[place[1]].most_bytes

    def make_room(self, length: int) -> bool:
        """Keep room for a reply that is read; False if too many others are held now."""
        with self._changed:
            if self.held_bytes and self.held_bytes + length > MOST_HELD_BYTES:
                return False
            self.held_bytes += length
            return True

    def give_room_back(self, length: int) -> None:
        """The reply for which there was room has been read, or will not come."""
        with self._changed:
            self.held_bytes -= length

    def put_reply(self, node: int, message_id: str, content: bytes) -> bool:
        """Take a node's reply; return False if no message of this id waits for an answer of this node."""
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
        """Remove and return those replies to these messages that are there, by message id."""
        with self._changed:
            taken = {one: self._replies.pop(one) for one in message_ids if one in self._replies}
            self.held_bytes -= sum(len(reply.content) for reply in taken.values())
            return taken

    def lost(self, message_ids: Iterable[str]) -> list[str]:
        """Those of these unanswered messages whose nodes are not connected."""
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
        """Wait until there is a reply to one of these messages, or a node disconnects, but no longer than this."""
        with self._changed:
            if self._replies.keys().isdisjoint(message_ids):
                self._changed.wait(seconds)

    def begin_waiting(self, node: int, wake: Callable[[], None]) -> None:
        """Note a request of a node that waits for messages; `wake` is called, from any thread, when one is put."""
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
            if box.last_request > float("-inf"):  # else it has said that it leaves
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
