"""Questions to many nodes at once: who answered what. Quicker than Flower's own, which looks every three seconds.

Looks at `shorter_polling` and Flower.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from flwr.app import Message
from flwr.serverapp import Grid

from truthfl.federation.flower_patches.shorter_polling import fetch_parts_soon

LOOK_EVERY = 0.25  # seconds


def ask(
    grid: Grid, messages: Iterable[Message], *, timeout: float, every: float = LOOK_EVERY
) -> list[tuple[int, Message]]:
    """Send one message to each of some nodes; the replies that came within `timeout` seconds, each with its node.

    A reply may be an error, be it the node's own or Flower's, which speaks for nodes that are gone; its own source is
    then no clue, so a reply belongs to the node that was asked. One that answers no question of ours belongs to the
    node it comes from. Nodes that are missing here did not answer in time.
    """
    fetch_parts_soon()
    asked = list(messages)
    sent = zip(grid.push_messages(asked), asked, strict=True)
    node_of = {number: message.metadata.dst_node_id for number, message in sent if number}
    waiting, end = dict.fromkeys(node_of), time.monotonic() + timeout  # not a set: answers keep the questions' order
    replies: list[tuple[int, Message]] = []
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            question = reply.metadata.reply_to_message_id
            waiting.pop(question, None)
            replies.append((node_of.get(question, reply.metadata.src_node_id), reply))
        if waiting:
            if time.monotonic() >= end:
                break
            time.sleep(every)
    return replies
