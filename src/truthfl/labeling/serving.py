"""Run the page on this machine, beside whatever else runs. Looks at `server`, `safety` and uvicorn."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from truthfl.errors import InputError
from truthfl.labeling.sample import Source
from truthfl.labeling.server import page
from truthfl.ledger.signing import PrivateKey

HOST = "127.0.0.1"
START_WITHIN_S = 30.0
STOP_WITHIN_S = 10.0


@dataclass(frozen=True, eq=False)
class OpenPage:
    """A page that is being served: its address, token included, and whether it has ended.

    An event is waited for, not the thread: a thread whose `join` was interrupted by Ctrl+C passes for ended.
    """

    url: str = field(repr=False)
    ended: threading.Event

    def wait(self) -> None:
        """Until it ends."""
        while not self.ended.wait(0.5):
            pass


@contextmanager
def open_page(
    home: Path, samples: Source, classes: Sequence[str], key: PrivateKey | None = None, *, port: int = 0
) -> Iterator[OpenPage]:
    """Serve the page in a thread for as long as this lasts; port 0 takes one that is free."""
    app = page(home, samples, classes, key)
    listening = _listen(port)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            access_log=False,
            log_level="error",
            server_header=False,
            timeout_graceful_shutdown=1,
            ws="none",
        )
    )
    ended = threading.Event()

    def serve() -> None:
        try:
            server.run(sockets=[listening])
        finally:
            ended.set()

    threading.Thread(target=serve, name="labeling page", daemon=True).start()
    try:
        _wait_until_started(server, ended)
        address = f"http://{HOST}:{listening.getsockname()[1]}"
        yield OpenPage(f"{address}/?token={app.state.door.token}", ended)
    finally:
        server.should_exit = True
        ended.wait(STOP_WITHIN_S)
        listening.close()


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or "there is no such port"
        raise InputError(f"port {port} cannot be used ({why}); name another with --port, or 0 for any.") from None


def _wait_until_started(server: uvicorn.Server, ended: threading.Event) -> None:
    deadline = time.monotonic() + START_WITHIN_S
    while not server.started:
        if ended.is_set() or time.monotonic() > deadline:
            raise InputError("the page's server did not start.")
        time.sleep(0.005)
