"""Flower's SuperNode with a shorter polling interval, which sends each reply as soon as it is there.

Run as `python -m truthfl.federation.flower_patches.prompt_supernode SECONDS` with the arguments of flower-supernode.
Imports `shorter_polling`, `replace_part` and Flower.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from truthfl.federation.flower_patches.replace_part import replace_part
from truthfl.federation.flower_patches.shorter_polling import shorten_message_polling, shorten_object_polling

LOOP, RECEIVE = "flwr.supernode.start_client_internal", "_pull_and_store_message"
SEND_NOW = 0  # in place of a run id, which the loop only compares with None


def send_replies_promptly() -> None:
    """Send replies also when no message was received.

    Flower's loop sends one reply, to any message, after each message it receives. If the server is killed while it
    sends a message, the node replies to that message after the next one; from then on each reply would be sent one
    message late.
    """

    def receive_or_send(*, state: Any, **kwargs: Any) -> int | None:
        run: int | None = receive(state=state, **kwargs)
        return SEND_NOW if run is None and _has_unsent_reply(state) else run

    receive = replace_part(import_module(LOOP), RECEIVE, receive_or_send)


def _has_unsent_reply(state: Any) -> bool:
    """Whether a reply waits to be sent; Flower's own function to get replies also removes them."""
    with state.lock_msg_store:
        unsent = [entry.message for entry in state.msg_store.values() if not entry.is_retrieved]
    return any(message.metadata.reply_to_message_id for message in unsent)


def main() -> None:
    shorten_message_polling(float(sys.argv.pop(1)))
    shorten_object_polling()
    send_replies_promptly()
    from flwr.supernode.cli import flower_supernode

    flower_supernode()


if __name__ == "__main__":
    main()
