"""Flower's messages as bytes, made and read in this process, without Flower's servers.

Uses `message_to_proto` and `message_from_proto` of `flwr.common.serde` and `Message` of `flwr.proto.message_pb2`.
Imports `flower_part`, `errors` and Flower.
"""

from __future__ import annotations

from typing import Any

from flwr.app import Message

from truthfl.errors import InputError
from truthfl.flower_patches.flower_part import flower_part

_to_proto = flower_part("flwr.common.serde", "message_to_proto")
_from_proto = flower_part("flwr.common.serde", "message_from_proto")
_Proto = flower_part("flwr.proto.message_pb2", "Message")


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
