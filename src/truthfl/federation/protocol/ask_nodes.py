"""Send messages to many nodes and collect their replies: at once where the grid can wait for them, else by polling.

`ask_nodes` waits for the replies; `OpenQuestions` collects later what has arrived.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from flwr.app import Message
from flwr.serverapp import Grid

POLL_SECONDS = 0.25
SECONDS_BETWEEN_LOOKS = 0.3  # at what may end a wait for replies


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
    """Messages for whose replies nobody waits: what has arrived is collected when there is time."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._open: dict[str, tuple[int, float]] = {}  # by message id: the node, and until when a reply counts

    @property
    def nodes(self) -> set[int]:
        """The nodes that may still reply."""
        return {node for node, _ in self._open.values()}

    def send(self, messages: Iterable[Message], seconds: float) -> None:
        """Send messages whose replies count for so many seconds."""
        sent = list(messages)
        if not sent:
            return
        until = time.monotonic() + seconds
        for message_id, message in zip(self.grid.push_messages(sent), sent, strict=True):
            if message_id:
                self._open[message_id] = message.metadata.dst_node_id, until

    def replies(self) -> list[tuple[int, Message]]:
        """(node id, reply) for the replies that have arrived since; those that are too late are given up."""
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
    """Send these messages no more; grids of Flower's own cannot."""
    if message_ids and hasattr(grid, "withdraw"):
        grid.withdraw(message_ids)


def allow_replies_of(grid: Grid, model_bytes: int) -> None:
    """Let replies to messages without a model have one of this length; grids of Flower's own have no limit."""
    if hasattr(grid, "allow_replies_of"):
        grid.allow_replies_of(model_bytes)


def _wait(grid: Grid, message_ids: list[str], seconds_left: float, poll_seconds: float) -> None:
    """Wait until there may be another reply; grids of Flower's own cannot tell."""
    if hasattr(grid, "wait_for_replies"):
        grid.wait_for_replies(message_ids, seconds_left)
    else:
        time.sleep(poll_seconds)
