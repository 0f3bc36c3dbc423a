"""Flower's SuperNode, which looks for messages as often as it is told to, and sends every answer once it is there.

`python -m truthfl.federation.flower_patches.prompt_supernode SECONDS` takes the arguments of flower-supernode.
Looks at `shorter_polling`, `replace_part` and Flower.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from truthfl.federation.flower_patches.replace_part import replace_part
from truthfl.federation.flower_patches.shorter_polling import fetch_parts_soon, look_for_messages_every

LOOP, RECEIVE = "flwr.supernode.start_client_internal", "_pull_and_store_message"
SEND_NOW = 0  # instead of a run's number, which the loop only holds against None


def send_answers_when_they_are_there() -> None:
    """Not only after a message has come.

    A SuperNode that received a message waits for an answer, any answer, and sends it; when nothing comes, it sends
    nothing. If the server is killed while it sends a message, that one is never taken back: it is answered in the next
    one's place, and from then on every answer waits for the message after it.
    """

    def receive_or_send(*, state: Any, **others: Any) -> int | None:
        run: int | None = receive(state=state, **others)
        return SEND_NOW if run is None and _an_answer_is_there(state) else run

    receive = replace_part(import_module(LOOP), RECEIVE, receive_or_send)


def _an_answer_is_there(state: Any) -> bool:
    """Whether one waits to be sent; Flower's own way to look takes what it finds."""
    with state.lock_msg_store:
        waiting = [entry.message for entry in state.msg_store.values() if not entry.is_retrieved]
    return any(message.metadata.reply_to_message_id for message in waiting)


def main() -> None:
    look_for_messages_every(float(sys.argv.pop(1)))
    fetch_parts_soon()
    send_answers_when_they_are_there()
    from flwr.supernode.cli import flower_supernode

    flower_supernode()


if __name__ == "__main__":
    main()
