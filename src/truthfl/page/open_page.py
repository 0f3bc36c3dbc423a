"""Run the page on this machine, beside whatever else runs.

Looks at `work`, `access_secrets`, and at `application` and uvicorn late.

The address is good as soon as the port listens: a browser that comes before the rest is loaded is answered when it is.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from truthfl.errors import InputError, ServiceError
from truthfl.page.access_secrets import Door
from truthfl.page.work import Work
from truthfl.samples.label_store import FILE_NAME, LabelStore
from truthfl.samples.sample import Source

if TYPE_CHECKING:
    from uvicorn import Server

    from truthfl.ledger.signing import PrivateKey

HOST = "127.0.0.1"
STOP_WITHIN_S = 10.0


@dataclass(frozen=True, eq=False)
class OpenPage:
    """A page that is being served: its address, token included, and whether it has ended.

    An event is waited for, not the thread: a thread whose `join` was interrupted by Ctrl+C passes for ended.
    """

    url: str = field(repr=False)
    ended: threading.Event

    def wait(self) -> None:
        """Until somebody interrupts; by itself it does not end, and if it does, that is said."""
        while not self.ended.wait(0.5):
            pass
        raise ServiceError("the page's server ended by itself; what it says about it stands above.")


@contextmanager
def open_page(
    home: Path,
    samples: Source,
    classes: Sequence[str],
    key: PrivateKey | None = None,
    *,
    given: Sequence[int] | None = None,
    port: int = 0,
) -> Iterator[OpenPage]:
    """Serve the page in a thread for as long as this lasts.

    home     her folder: her papers lie in it, and labels.db
    classes  names of the classes, unless an offer says them
    key      signs her answer to an offer
    given    labels that the samples came with, which are not asked for again
    port     0 takes one that is free
    """
    store = LabelStore(home / FILE_NAME)
    try:
        work, door = Work(home, samples, classes, store, given), Door()
        with listen(port) as listening, _served(work, key, door, listening) as ended:
            yield OpenPage(f"http://{HOST}:{listening.getsockname()[1]}{door.root}?token={door.token}", ended)
    finally:
        store.close()


@contextmanager
def _served(work: Work, key: PrivateKey | None, door: Door, listening: socket.socket) -> Iterator[threading.Event]:
    """Whether it has ended, while it is served."""
    ended = threading.Event()
    made: Future[Server | None] = Future()

    def serve() -> None:
        try:
            server = _server(work, key, door)
            made.set_result(server)
            server.run(sockets=[listening])
        finally:
            if not made.done():
                made.set_result(None)
            ended.set()

    threading.Thread(target=serve, name="labeling page", daemon=True).start()
    try:
        yield ended
    finally:
        server = made.result()
        if server is not None:
            server.should_exit = True
            ended.wait(STOP_WITHIN_S)


def _server(work: Work, key: PrivateKey | None, door: Door) -> Server:
    import uvicorn

    from truthfl.page.application import page

    return uvicorn.Server(
        uvicorn.Config(
            page(work, key, door),
            access_log=False,
            log_level="error",
            server_header=False,
            loop="asyncio",  # the same for everybody: uvloop may be installed or not
            lifespan="off",
            timeout_graceful_shutdown=1,
            ws="none",
        )
    )


def listen(port: int) -> socket.socket:
    """A port that listens. It is TCP by name: only then does asyncio send small answers at once, not 40 ms later."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen()
    except OverflowError:
        listening.close()
        raise InputError(f"port is {port}; it must be from 1 to 65535, or 0 for any that is free.") from None
    except OSError as error:
        listening.close()
        why = error.strerror
        raise ServiceError(f"port {port} cannot be used ({why}); name another with --port, or 0 for any.") from None
    return listening
