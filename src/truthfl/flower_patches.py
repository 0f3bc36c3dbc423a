"""All uses of Flower beyond its documented interface; other modules import them from here. The parts:

- `ErrorCode` of `flwr.common.constant`: Flower's names for failures.
- `TaskIdentity` of `flwr.supercore.task_identity`, with its private field `_run_id`: the ids without which Flower
  makes no messages. Flower's own processes set them.
- The private fields `_message_id`, `_src_node_id` and `_reply_to_message_id` of `flwr.app.Metadata`.
- `message_to_proto` and `message_from_proto` of `flwr.common.serde`, and `Message` of `flwr.proto.message_pb2`:
  messages as bytes, made and read without Flower's servers.
- `Run` of `flwr.supercore.run` and `NodeInfo` of `flwr.proto.node_pb2`, from the signatures of `Grid`.

`flower_part` looks up each part when this module is imported. A version of Flower without one of them is thus refused
with a sentence before any work is done.
"""

from __future__ import annotations

from functools import cache, reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any

import flwr
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from truthfl.errors import InputError, ServiceError

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo as NodeInfo  # other modules import it from here
    from flwr.supercore.run import Run


def flower_part(module: str, name: str) -> Any:
    """Import the attribute, or an attribute's attribute if the name has dots; raise ServiceError if there is none."""
    try:
        return reduce(getattr, name.split("."), import_module(module))
    except (ImportError, AttributeError):
        raise _missing_part(f"{module}.{name}") from None


def _missing_part(part: str) -> ServiceError:
    """The error for a part that this version of Flower lacks."""

    return ServiceError(
        f"Flower {flwr.__version__} has no {part}; truthfl needs Flower 1.41: pip install 'flwr==1.41.*'."
    )


CLIENT_APP_FAILED: int = flower_part("flwr.common.constant", "ErrorCode.CLIENT_APP_RAISED_EXCEPTION")
MESSAGE_UNAVAILABLE: int = flower_part("flwr.common.constant", "ErrorCode.MESSAGE_UNAVAILABLE")
NODE_UNAVAILABLE: int = flower_part("flwr.common.constant", "ErrorCode.NODE_UNAVAILABLE")

_identity = flower_part("flwr.supercore.task_identity", "TaskIdentity")
flower_part("flwr.supercore.task_identity", "TaskIdentity._run_id")
flower_part("flwr.supercore.task_identity", "TaskIdentity.__class__.task_id")  # setting one that is not there
flower_part("flwr.supercore.task_identity", "TaskIdentity.__class__.run_id")  # would do nothing
flower_part("flwr.supercore.task_identity", "TaskIdentity.__class__.node_id")

_to_proto = flower_part("flwr.common.serde", "message_to_proto")
_from_proto = flower_part("flwr.common.serde", "message_from_proto")
_Proto = flower_part("flwr.proto.message_pb2", "Message")

if not TYPE_CHECKING:
    NodeInfo = flower_part("flwr.proto.node_pb2", "NodeInfo")
    Run = flower_part("flwr.supercore.run", "Run")
_empty_run = flower_part("flwr.supercore.run", "Run.create_empty")

RUN_ID = TASK_ID = 1
ANY_NODE_ID = 1  # where messages are made and not sent
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5  # how fields are written in Protocol Buffers


def set_task_identity(node_id: int) -> None:
    """Make `Message()` work in this process, for the server or for a node."""
    _identity.task_id, _identity.run_id, _identity.node_id = TASK_ID, RUN_ID, node_id


def set_task_identity_if_unset() -> None:
    """Make `Message()` work in this process; existing ids stay as they are."""
    if _identity._run_id is None:
        set_task_identity(ANY_NODE_ID)


def set_message_id(message: Message, message_id: str) -> None:
    """Give a message its id, which replies name."""
    _set_metadata(message, _message_id=message_id)


def set_origin(reply: Message, node_id: int, message_id: str) -> None:
    """Mark a reply as coming from this node and answering this message, whatever it claims."""
    _set_metadata(reply, _src_node_id=node_id, _reply_to_message_id=message_id)


def _set_metadata(message: Message, **values: str | int) -> None:
    fields = vars(message.metadata)
    for name, value in values.items():
        if name not in fields:
            raise _missing_part(f"flwr.app.Metadata.{name}")
        fields[name] = value


def message_bytes(message: Message) -> bytes:
    """The message with its content."""
    content: bytes = _to_proto(message).SerializeToString()
    return content


def message_from_bytes(content: bytes, most_besides_arrays: int | None = None) -> Message:
    """The message in untrusted bytes; raise InputError if they are not a message.

    most_besides_arrays  the most bytes besides the numbers of arrays: records, lists and texts need thirty times their
                         length in memory and take long to read; None for no limit
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
    """The field numbers that lead to an array's data in a message."""
    names, path, place = ("content", "items", "array_record", "items", "value", "data"), [], _Proto.DESCRIPTOR
    for name in names:
        path.append(place.fields_by_name[name].number)
        place = place.fields_by_name[name].message_type
    return tuple(path)


def _require_few_bytes(content: bytes, start: int, end: int, path: tuple[int, ...], most: int) -> int:
    """The number of bytes between these places that are not arrays' data; raise InputError if it is above `most`.

    path  the field numbers that lead from here to the data
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


class OneRunGrid(Grid):
    """A grid of this process, with one run."""

    def __init__(self, server_node_id: int) -> None:
        set_task_identity(server_node_id)

    def set_run(self, run: Run) -> None:
        raise NotImplementedError("this grid has one run.")

    @property
    def run(self) -> Run:
        run: Run = _empty_run(run_id=RUN_ID)
        return run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id=dst_node_id, message_type=message_type, ttl=ttl, group_id=group_id)
