"""`NodeRegistry`: whom the server lets in, by public key.

A node's id follows from its key, so it is the same after a restart of node or server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from truthfl.errors import InputError
from truthfl.ledger.signing import normal_public_line

SERVER_NODE_ID = 1  # as in Flower


@dataclass(frozen=True)
class KnownNode:
    """A node that may connect: its id, its public key (one OpenSSH line) and the name it is registered for."""

    node_id: int
    public_key: str
    name: str


def node_id_of(public_key: str) -> int:
    """The id of the node with this public key: 63 bits of a hash."""
    number = int.from_bytes(sha256(public_key.encode()).digest()[:8], "big") >> 1
    return number if number > SERVER_NODE_ID else number + 2


class NodeRegistry:
    """Registered nodes. All methods may be called from any thread.

    closed   whether only registered keys are let in; otherwise any key is, without a name
    look_up  called with a key that has no name here; returns the name under which it is let in, "" for none, or None
    """

    def __init__(self, *, closed: bool, look_up: Callable[[str], str | None] = lambda _: None) -> None:
        self.closed, self.look_up = closed, look_up
        self._nodes: dict[int, KnownNode] = {}
        self._lock = threading.Lock()

    def register(self, public_key: str, name: str) -> KnownNode:
        """Let a key in under this name, and its earlier one no more; raise InputError if it is another name's."""
        line = normal_public_line(public_key)
        node = KnownNode(node_id_of(line), line, name)
        with self._lock:
            earlier = self._nodes.setdefault(node.node_id, node)
            if not earlier.name:
                earlier = self._nodes[node.node_id] = node
            if name and earlier == node:
                self._nodes = {own: one for own, one in self._nodes.items() if one.name != name or one == node}
        if earlier != node:
            raise InputError(f"the key of {name} is that of {earlier.name}; each participant needs one of her own.")
        return node

    def remove(self, name: str) -> list[KnownNode]:
        """Let this name's keys in no more; return what was removed."""
        with self._lock:
            removed = [node for node in self._nodes.values() if node.name == name]
            for node in removed:
                del self._nodes[node.node_id]
        return removed

    def find(self, public_key: str) -> KnownNode | None:
        """The node with this key; None if it is not let in."""
        with self._lock:
            known = self._nodes.get(node_id_of(public_key))
        if known is not None and (known.name or not self.closed):
            return known
        name = self.look_up(public_key) if self.closed else ""
        return None if name is None else self.register(public_key, name)

    def of_id(self, node_id: int) -> KnownNode | None:
        with self._lock:
            return self._nodes.get(node_id)
