"""The ids in a message's metadata, which Flower's own processes set.

Uses the private fields `_message_id`, `_src_node_id` and `_reply_to_message_id` of `flwr.app.Metadata`.
"""

from __future__ import annotations

from flwr.app import Message

from truthfl.flower_patches.flower_part import missing_part


def set_message_id(message: Message, message_id: str) -> None:
    """Give a message its id, which a reply then names."""
    _set(message, _message_id=message_id)


def set_origin(reply: Message, node_id: int, message_id: str) -> None:
    """Let a reply say that it is from this node and to this message, whatever it says itself."""
    _set(reply, _src_node_id=node_id, _reply_to_message_id=message_id)


def _set(message: Message, **values: str | int) -> None:
    fields = vars(message.metadata)
    for name, value in values.items():
        if name not in fields:
            raise missing_part(f"flwr.app.Metadata.{name}")
        fields[name] = value
