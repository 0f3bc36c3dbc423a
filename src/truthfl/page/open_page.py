"""Serve the page in a thread of this process.

The URL is valid as soon as the port listens; earlier requests are answered when the application is loaded. Imports
`work`, `access_secrets`, `samples`; `application` and uvicorn in the thread; `ledger` for types only.
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
from truthfl.page.access_secrets import AccessSecrets
from truthfl.page.work import Work
from truthfl.samples.label_store import FILE_NAME, LabelStore
from truthfl.samples.sample import Source

if TYPE_CHECKING:
    from uvicorn import Server

    from truthfl.ledger.signing import PrivateKey

HOST = "127.0.0.1"
SHUTDOWN_WAIT_S = 10.0


@dataclass(frozen=True, eq=False)
class OpenPage:
    """A page that is being served.

    url     with the token
    ended   set when the server has stopped; an event, since a thread whose `join` was interrupted by Ctrl+C counts as
            finished
    """

    url: str = field(repr=False)
    ended: threading.Event

    def wait(self) -> None:
        """Wait for Ctrl+C; raise an error if the server stops by itself."""
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
    existing_labels: Sequence[int | str] | None = None,
    port: int = 0,
) -> Iterator[OpenPage]:
    """Serve the page until the context ends.

    home             the participant's folder, with her documents and labels.db
    classes          names of the classes, if there is no offer
    key              signs answers to offers
    existing_labels  labels in the sample file itself, indices or names of classes; they are shown, and not changed
    port             0 for any free one
    """
    store = LabelStore(home / FILE_NAME)
    try:
        work, access = Work(home, samples, classes, store, existing_labels), AccessSecrets()
        with listen(port) as listener, _served(work, key, access, listener) as ended:
            yield OpenPage(f"http://{HOST}:{listener.getsockname()[1]}{access.root}?token={access.token}", ended)
    finally:
        store.close()


@contextmanager
def _served(
    work: Work, key: PrivateKey | None, access: AccessSecrets, listener: socket.socket
) -> Iterator[threading.Event]:
    """Serve in a thread until the context ends; the event is set when the server has stopped."""
    ended = threading.Event()
    started: Future[Server | None] = Future()

    def serve() -> None:
        try:
            server = _server(work, key, access)
            started.set_result(server)
            server.run(sockets=[listener])
        finally:
            if not started.done():
                started.set_result(None)
            ended.set()

    threading.Thread(target=serve, name="labeling page", daemon=True).start()
    try:
        yield ended
    finally:
        server = started.result()
        if server is not None:
            server.should_exit = True
            ended.wait(SHUTDOWN_WAIT_S)


def _server(work: Work, key: PrivateKey | None, access: AccessSecrets) -> Server:
    import uvicorn

    from truthfl.page.application import page

    return uvicorn.Server(
        uvicorn.Config(
            page(work, key, access),
            access_log=False,
            log_level="error",
            server_header=False,
            loop="asyncio",  # the same on all machines, whether uvloop is installed or not
            lifespan="off",
            timeout_graceful_shutdown=1,
            ws="none",
        )
    )


def listen(port: int) -> socket.socket:
    """A listening socket.

    The protocol IPPROTO_TCP is explicit, since only then asyncio sets TCP_NODELAY; without it, small responses would
    take 40 ms longer.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
    except OverflowError:
        listener.close()
        raise InputError(f"port is {port}; it must be from 1 to 65535, or 0 for any that is free.") from None
    except OSError as error:
        listener.close()
        reason = error.strerror
        raise ServiceError(f"port {port} cannot be used ({reason}); name another with --port, or 0 for any.") from None
    return listener
