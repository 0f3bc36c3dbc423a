"""A listening socket with a limit on its open connections, for a port that strangers in the network can reach.

Connections on which nothing comes, or a TLS handshake never ends, would otherwise use up the files that this process
may open, and with them the page on the computer itself.
"""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import suppress
from typing import Any

MOST_CONNECTIONS = 64
MOST_OF_ONE_ADDRESS = 16  # a browser opens six


class BoundedListener(socket.socket):
    """Closes an older connection when there are too many: the oldest of the address that has most of them."""

    __slots__ = ("_connections",)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._connections: list[tuple[str, socket.socket]] = []  # the oldest first

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self._connections = [(host, other) for host, other in self._connections if other.fileno() != -1]
        self._connections.append((address[0], connection))
        counts = Counter(host for host, _ in self._connections)
        most, count = counts.most_common(1)[0]
        if len(self._connections) > MOST_CONNECTIONS or count > MOST_OF_ONE_ADDRESS:
            oldest = next(pair for pair in self._connections if pair[0] == most)
            self._connections.remove(oldest)
            _end(oldest[1])
        return connection, address

    def close(self) -> None:
        """Stop listening, and end what is open: a phone that does not answer would delay the end of the server."""
        super().close()
        for _, connection in self._connections:
            _end(connection)


def _end(connection: socket.socket) -> None:
    """End a connection; the event loop sees it and closes it."""
    with suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)
