"""Flower's messages as bytes, made and read in this process, without Flower's servers.

Uses of Flower's insides: `flwr.common.serde` for the bytes, `TaskIdentity` and the private field `_message_id`, which
Flower's own processes set. Imports `flower_part` and Flower.
"""

from __future__ import annotations

from typing import Any

from flwr.app import Message

from truthfl.errors import InputError
from truthfl.federation.flower_patches.flower_part import flower_part

RUN_ID = TASK_ID = 1
_to_proto = flower_part("flwr.common.serde", "message_to_proto")
_from_proto = flower_part("flwr.common.serde", "message_from_proto")
_Proto = flower_part("flwr.proto.message_pb2", "Message")
_identity = flower_part("flwr.supercore.task_identity", "TaskIdentity")


def set_task_identity(node_id: int) -> None:
    """Let `Message()` be called in this process, by the server or by a node."""
    _identity.task_id, _identity.run_id, _identity.node_id = TASK_ID, RUN_ID, node_id


def set_run_identity(run_id: int) -> None:
    """Let replies be made to messages of this run."""
    _identity.run_id = run_id


def set_message_id(message: Message, message_id: str) -> None:
    """Give a message its id, which a reply then names."""
    vars(message.metadata)["_message_id"] = message_id


def set_origin(reply: Message, node_id: int, message_id: str) -> None:
    """Let a reply say that it is from this node and to this message, whatever it says itself."""
    vars(reply.metadata).update(_src_node_id=node_id, _reply_to_message_id=message_id)


def message_bytes(message: Message) -> bytes:
    """The message with its content."""
    content: bytes = _to_proto(message).SerializeToString()
    return content


def message_from_bytes(content: bytes) -> Message:
    """The message in untrusted bytes; raise InputError if they are none."""
    try:
        proto: Any = _Proto()
        proto.ParseFromString(content)
        message: Message = _from_proto(proto)
    except Exception as error:  # Flower's conversion raises errors of many kinds
        raise InputError(f"a message cannot be read ({type(error).__name__}).") from None
    return message
