"""Send messages to many nodes and collect their replies: at once where the grid can wait for them, else by polling.

Imports `shorter_polling` and Flower.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from flwr.app import Message
from flwr.serverapp import Grid

from truthfl.flower_patches.shorter_polling import shorten_object_polling

POLL_SECONDS = 0.25


def ask_nodes(
    grid: Grid, messages: Iterable[Message], *, timeout: float, poll_seconds: float = POLL_SECONDS
) -> list[tuple[int, Message]]:
    """Send the messages; return (node id, reply) for each reply that arrived within `timeout` seconds.

    A reply may be an error, from the node or from Flower on behalf of a disconnected node. The source of such a reply
    is not reliable, so the node id is the destination of the message replied to; for a reply to an unknown message it
    is the reply's source. Nodes that did not reply in time are missing from the result.
    """
    shorten_object_polling()
    sent = list(messages)
    message_ids = grid.push_messages(sent)
    node_of = {
        message_id: message.metadata.dst_node_id
        for message_id, message in zip(message_ids, sent, strict=True)
        if message_id
    }
    pending = dict.fromkeys(node_of)  # a dict, not a set: replies keep the order of the messages
    deadline = time.monotonic() + timeout
    replies: list[tuple[int, Message]] = []
    while pending:
        for reply in grid.pull_messages(list(pending)):
            message_id = reply.metadata.reply_to_message_id
            pending.pop(message_id, None)
            replies.append((node_of.get(message_id, reply.metadata.src_node_id), reply))
        if pending:
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                break
            _wait(grid, list(pending), seconds_left, poll_seconds)
    if pending and hasattr(grid, "withdraw"):
        grid.withdraw(list(pending))
    return replies


def allow_replies_of(grid: Grid, model_bytes: int) -> None:
    """Let replies have models of this length; grids of Flower's own have no limit."""
    if hasattr(grid, "allow_replies_of"):
        grid.allow_replies_of(model_bytes)


def _wait(grid: Grid, message_ids: list[str], seconds_left: float, poll_seconds: float) -> None:
    """Wait until there may be another reply; grids of Flower's own cannot tell."""
    if hasattr(grid, "wait_for_replies"):
        grid.wait_for_replies(message_ids, seconds_left)
    else:
        time.sleep(poll_seconds)
