"""A node's messages on a SuperLink of Flower's own: received whole, and replies sent whole, in this process.

Takes the place of Flower's SuperNode, whose loop polls every 3 s and starts a process for each message. It uses its
connection (`flwr.supernode.fleet_http_connection`, with `flwr_exit` replaced, which would end this process) and its
way to take messages apart (`flwr.supercore.inflatable`). Imports `flower_part`, `message_bytes`, `replace_part`,
`shorter_polling` and Flower.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import Message

from truthfl.errors import ServiceError
from truthfl.federation.flower_patches.flower_part import flower_part
from truthfl.federation.flower_patches.message_bytes import set_message_id, set_run_identity
from truthfl.federation.flower_patches.replace_part import replace_part
from truthfl.federation.flower_patches.shorter_polling import shorten_object_polling
from truthfl.ledger.signing import PrivateKey

CONNECTION = "flwr.supernode.fleet_http_connection"
OBJECTS, PULLING = "flwr.supercore.inflatable.inflatable_object", "flwr.supercore.inflatable.inflatable_utils"


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
        parts = [part.object_id for part in flower_part(OBJECTS, "iterate_object_tree")(tree)]
        contents = flower_part(PULLING, "pull_objects")(parts, pull_object_fn=partial(self._pull, run))
        self._confirm(run, message_id)
        message: Message = flower_part(PULLING, "inflate_object_from_contents")(message_id, contents)
        set_message_id(message, message_id)
        set_run_identity(run)
        return message

    def send(self, reply: Message, seconds: float) -> None:
        """Send a reply that took so long to make."""
        with flower_part(OBJECTS, "no_object_id_recompute")():
            set_message_id(reply, reply.object_id)
            tree = flower_part(OBJECTS, "get_object_tree")(reply)
            missing, session = self._send(reply, tree, seconds)
            for part, content in flower_part(OBJECTS, "get_all_nested_objects")(reply).items():
                if part in missing:
                    self._push(reply.metadata.run_id, session, part, content.deflate())


@contextmanager
def superlink_messages(address: str, root: Path | None, key: PrivateKey) -> Iterator[SuperLinkMessages]:
    """Connect to the SuperLink at this address; over TLS with the participant's key, or without both."""
    shorten_object_polling()
    connect, module = flower_part(CONNECTION, "http_request_response"), import_module(CONNECTION)

    def fail(_code: int, message: str = "", *_: object, **__: object) -> NoReturn:
        reason = " ".join(message.splitlines()[1:]) or "no reason was given"
        raise ServiceError(f"the SuperLink at {address} does not admit this node: {reason}.")

    exit_function = replace_part(module, "flwr_exit", fail)
    try:
        keys = None if root is None else (key, key.public_key())
        certificate = None if root is None else root.read_bytes()
        with connect(address, root is None, certificate, keys, max_retries=0) as connection:
            yield SuperLinkMessages(connection)
    finally:
        replace_part(module, "flwr_exit", exit_function)
