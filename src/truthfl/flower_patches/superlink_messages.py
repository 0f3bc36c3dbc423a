"""A node's messages on a SuperLink of Flower's own: received whole, and replies sent whole, in this process.

Takes the place of Flower's SuperNode, whose loop polls every 3 s and starts a process for each message. Uses its
connection, `http_request_response` of `flwr.supernode.fleet_http_connection`, with `flwr_exit` replaced, which would
end this process; and, to take messages apart and put them together, functions of `inflatable_object` and
`inflatable_utils` in `flwr.supercore.inflatable`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from flwr.app import Message

from truthfl.errors import ServiceError
from truthfl.flower_patches.flower_part import flower_part, replace_part
from truthfl.flower_patches.message_ids import set_message_id
from truthfl.flower_patches.shorter_polling import shorten_object_polling
from truthfl.flower_patches.task_identity import set_run_identity

CONNECTION, EXIT = "flwr.supernode.fleet_http_connection", "flwr_exit"
OBJECTS, PULLING = "flwr.supercore.inflatable.inflatable_object", "flwr.supercore.inflatable.inflatable_utils"
_connect = flower_part(CONNECTION, "http_request_response")
_parts_of_tree = flower_part(OBJECTS, "iterate_object_tree")
_tree_of = flower_part(OBJECTS, "get_object_tree")
_parts_of = flower_part(OBJECTS, "get_all_nested_objects")
_with_fixed_ids = flower_part(OBJECTS, "no_object_id_recompute")
_pull_parts = flower_part(PULLING, "pull_objects")
_put_together = flower_part(PULLING, "inflate_object_from_contents")
flower_part(CONNECTION, EXIT)


class SuperLinkMessages:
    """The messages of one node.

    node_id  as the SuperLink says
    """

    def __init__(self, connection: tuple[Any, ...]) -> None:
        self.node_id, self._receive, self._send, *_, self._pull, self._push, self._confirm = connection

    def receive(self) -> Message | None:
        """The next message; None if there is none now."""
        received = self._receive()
        if received is None:
            return None
        announced, tree = received
        run, message_id = announced.metadata.run_id, announced.metadata.message_id
        parts = [part.object_id for part in _parts_of_tree(tree)]
        contents = _pull_parts(parts, pull_object_fn=partial(self._pull, run))
        self._confirm(run, message_id)
        message: Message = _put_together(message_id, contents)
        set_message_id(message, message_id)
        set_run_identity(run)
        return message

    def send(self, reply: Message, seconds: float) -> None:
        """Send a reply that took so long to make."""
        with _with_fixed_ids():
            set_message_id(reply, reply.object_id)
            tree = _tree_of(reply)
            missing, session = self._send(reply, tree, seconds)
            for part, content in _parts_of(reply).items():
                if part in missing:
                    self._push(reply.metadata.run_id, session, part, content.deflate())


@contextmanager
def superlink_messages(address: str, root: Path | None, key: EllipticCurvePrivateKey) -> Iterator[SuperLinkMessages]:
    """Connect to the SuperLink at this address; over TLS with the participant's key, or without both."""
    shorten_object_polling()

    def fail(_code: int, message: str = "", *_: object, **__: object) -> NoReturn:
        reason = " ".join(message.splitlines()[1:]) or "no reason was given"
        raise ServiceError(f"the SuperLink at {address} does not admit this node: {reason}.")

    exit_function = replace_part(CONNECTION, EXIT, fail)
    try:
        keys = None if root is None else (key, key.public_key())
        certificate = None if root is None else root.read_bytes()
        with _connect(address, root is None, certificate, keys, max_retries=0) as connection:
            yield SuperLinkMessages(connection)
    finally:
        replace_part(CONNECTION, EXIT, exit_function)
