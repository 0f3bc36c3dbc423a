"""Ask the operator's server again and again whether it answers, while the participant's page shows that.

A node's request for its next message is answered only when there is one, so a server that hangs would be noticed by
nothing else for a long time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from truthfl.federation.deployed.node_connection import NodeConnection
from truthfl.ledger.connection_file import ConnectionFile

# Together 1.5 seconds; the page asks every second, and so shows within three that the server hangs.
INTERVAL_SECONDS, ANSWER_SECONDS = 0.5, 1.0


@contextmanager
def watch_server(connection: NodeConnection, state: ConnectionFile) -> Iterator[None]:
    """Note in the file, while this context is open and somebody reads it, whether the server answers."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(connection, state, ended), name="truthfl watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(connection: NodeConnection, state: ConnectionFile, ended: threading.Event) -> None:
    while not ended.wait(INTERVAL_SECONDS):
        if not state.is_read:
            connection.close()
            continue
        began = time.monotonic()
        answers = connection.answers_within(ANSWER_SECONDS)
        if not answers and not ended.is_set():  # one that was closed because nobody asked for long is opened again
            answers = time.monotonic() - began < ANSWER_SECONDS / 2 and connection.answers_within(ANSWER_SECONDS / 2)
        state.note(answers, 0.0 if answers else time.monotonic() - began)
    connection.close()
