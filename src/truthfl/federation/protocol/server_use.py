"""What the server's process has used so far: time, processor time, bytes of messages and replies."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flwr.serverapp import Grid


@dataclass(frozen=True)
class ServerUse:
    """Seconds, processor seconds of all threads, and bytes to and from nodes, without those of TLS and HTTP."""

    seconds: float
    cpu_seconds: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0

    def since(self, earlier: ServerUse) -> ServerUse:
        """What was used since then."""
        return ServerUse(
            self.seconds - earlier.seconds,
            self.cpu_seconds - earlier.cpu_seconds,
            self.sent_bytes - earlier.sent_bytes,
            self.received_bytes - earlier.received_bytes,
        )


def server_use(grid: Grid) -> ServerUse:
    """Now; grids of Flower's own do not count bytes."""
    sent, received = getattr(grid, "bytes_so_far", (0, 0))
    return ServerUse(time.monotonic(), time.process_time(), sent, received)
