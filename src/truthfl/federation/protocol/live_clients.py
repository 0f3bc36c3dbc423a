"""Notes about single clients in the live status: who is connected, when each was heard, how many labels are there.

Nothing is noted where the status is not written, as in simulations.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from flwr.app import Message

from truthfl.federation.protocol.live_status import LiveClient, LiveStatus, LiveWriter


def note_connected(live: LiveWriter, connected: Collection[str]) -> None:
    """Note that these clients, and no others, are connected."""
    if live.folder is None:
        return

    def edit(status: LiveStatus) -> None:
        for name in {*status.clients, *connected}:
            status.clients.setdefault(name, LiveClient()).connected = name in connected

    live.change(edit)


def note_replies(
    live: LiveWriter, name_of: Mapping[int, str], asked_at: float, replies: Sequence[tuple[int, Message]]
) -> None:
    """Note that these replies came to a question of this time, in seconds since 1970.

    A reply says itself when it was made; it is taken to be between the question and now.
    """
    if live.folder is None:
        return
    now = time.time()
    seen = datetime.now(UTC).isoformat(timespec="milliseconds")

    def edit(status: LiveStatus) -> None:
        for node, reply in replies:
            if node in name_of and not reply.has_error():
                client = status.clients.setdefault(name_of[node], LiveClient())
                made = min(max(float(reply.metadata.created_at), asked_at), now)
                client.last_seen, client.reply_seconds = seen, round(made - asked_at, 3)

    live.change(edit)


def note_labels(live: LiveWriter, name: str, labeled: object, asked: int) -> None:
    """Note how many labels a client says to have; anything but a whole number up to those asked for is ignored."""
    if live.folder is None or type(labeled) is not int or not 0 <= labeled <= asked:
        return

    def edit(status: LiveStatus) -> None:
        status.clients.setdefault(name, LiveClient()).labeled = labeled

    live.change(edit)
