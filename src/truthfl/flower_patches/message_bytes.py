"""Flower's messages as bytes, made and read in this process, without Flower's servers.

Uses `message_to_proto` and `message_from_proto` of `flwr.common.serde` and `Message` of `flwr.proto.message_pb2`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from flwr.app import Message

from truthfl.errors import InputError
from truthfl.flower_patches.flower_part import flower_part

_to_proto = flower_part("flwr.common.serde", "message_to_proto")
_from_proto = flower_part("flwr.common.serde", "message_from_proto")
_Proto = flower_part("flwr.proto.message_pb2", "Message")
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5  # how fields are written in Protocol Buffers


def message_bytes(message: Message) -> bytes:
    """The message with its content."""
    content: bytes = _to_proto(message).SerializeToString()
    return content


def message_from_bytes(content: bytes, most_besides_arrays: int | None = None) -> Message:
    """The message in untrusted bytes; raise InputError if they are none.

    most_besides_arrays  so many bytes may be something else than the numbers of arrays: records, lists and texts take
                         thirty times their length in memory, and long to read; None reads any
    """
    try:
        if most_besides_arrays is not None:
            _require_few_bytes(content, 0, len(content), _path_to_data(), most_besides_arrays)
        proto: Any = _Proto()
        proto.ParseFromString(content)
        message: Message = _from_proto(proto)
    except InputError:
        raise
    except Exception as error:  # Flower's conversion raises errors of many kinds
        raise InputError(f"a message cannot be read ({type(error).__name__}).") from None
    return message


@cache
def _path_to_data() -> tuple[int, ...]:
    """The numbers of the fields that lead to an array's data in a message."""
    names, path, place = ("content", "items", "array_record", "items", "value", "data"), [], _Proto.DESCRIPTOR
    for name in names:
        path.append(place.fields_by_name[name].number)
        place = place.fields_by_name[name].message_type
    return tuple(path)


def _require_few_bytes(content: bytes, start: int, end: int, path: tuple[int, ...], most: int) -> int:
    """The number of bytes between these places that are no data of arrays; raise InputError if it is above `most`.

    path  of the fields that lead to the data from here
    """
    others, place = 0, start
    while place < end:
        begin = place
        tag, place = _varint(content, place)
        kind, length = tag & 7, 0
        if kind == _LENGTH:
            length, place = _varint(content, place)
        elif kind == _VARINT:
            _, place = _varint(content, place)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            place += 8 if kind == _EIGHT_BYTES else 4
        else:
            raise InputError("a message cannot be read (it has a field of an unknown form).")
        others += place - begin
        if kind == _LENGTH:
            if place + length > end:
                raise InputError("a message cannot be read (it is not whole).")
            if tag >> 3 != path[0]:
                others += length
            elif len(path) > 1:
                others += _require_few_bytes(content, place, place + length, path[1:], most - others)
            place += length
        if others > most:
            raise InputError("besides arrays, the message is longer than what is read.")
    return others


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """The number at this place, and the place after it."""
    number = shift = 0
    while True:
        byte = content[place]
        place += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, place
        shift += 7
        if shift > 63:
            raise InputError("a message cannot be read (a number is too long).")
