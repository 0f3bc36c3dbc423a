"""Serves an ASGI application in a thread of this process and limits its open connections.

Without the limit, idle connections could use up the files that this process may open, and block the page on the
computer itself. The URL is valid as soon as the port listens; requests wait until the application is loaded.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truthfl.errors import InputError, ServiceError
from truthfl.page.access import AccessSecrets
from truthfl.samples.label_store import LABELS_FILE, LabelStore
from truthfl.samples.sample import Source

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn import Server

    from truthfl.instructions import Instructions
    from truthfl.learning.people.second_opinion import OpinionSource
    from truthfl.ledger.signing import PrivateKey
    from truthfl.page.phone import PhoneAccess
    from truthfl.page.work import ExistingLabels, Work


MOST_CONNECTIONS = 64
MOST_OF_ONE_ADDRESS = 16  # a browser opens six


class BoundedListener(socket.socket):
    """Closes a connection when there are too many: the oldest one of the address that has the most."""

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
        """Stop listening and end open connections: a phone that does not answer would delay the server's end."""
        super().close()
        for _, connection in self._connections:
            _end(connection)


def _end(connection: socket.socket) -> None:
    """End a connection; the event loop notices it and closes it."""
    with suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)


HOST = "127.0.0.1"
SHUTDOWN_WAIT_S = 10.0


@dataclass(frozen=True, eq=False)
class OpenPhonePage:
    """The same page, served to a phone.

    url                 with the token, which admits one device, once
    fingerprint         SHA-256 of the certificate
    is_new_certificate  whether the certificate is new, so that no phone knows it
    ended               set when its server has stopped
    """

    url: str = field(repr=False)
    fingerprint: str
    is_new_certificate: bool
    ended: threading.Event


@dataclass(frozen=True, eq=False)
class OpenPage:
    """A page that is being served.

    url     with the token
    ended   set when the server has stopped; an event, since a thread counts as finished if Ctrl+C interrupted its
            `join`
    phone   the page for the participant's phone; None if the page is for this machine alone
    """

    url: str = field(repr=False)
    ended: threading.Event
    phone: OpenPhonePage | None = None

    def wait(self) -> None:
        """Wait for Ctrl+C; raise an error if the server stops by itself."""
        while not self.ended.wait(0.5) and (self.phone is None or not self.phone.ended.is_set()):
            pass
        raise ServiceError("the page's server ended by itself; what it says about it stands above.")


@contextmanager
def opened(make_app: Callable[[AccessSecrets], ASGIApp], port: int, thread_name: str) -> Iterator[OpenPage]:
    """Serve an application behind new secrets until the context ends.

    make_app   called in the thread, so that its imports do not delay the URL
    port       0 for any free one
    """
    access = AccessSecrets()
    with listen(port) as listener, served(lambda: make_app(access), listener, thread_name) as ended:
        yield OpenPage(f"http://{HOST}:{listener.getsockname()[1]}{access.root}?token={access.token}", ended)


@contextmanager
def served(
    make_app: Callable[[], ASGIApp], listener: socket.socket, thread_name: str, certificate: Path | None = None
) -> Iterator[threading.Event]:
    """Serve in a thread until the context ends; the event is set when the server has stopped.

    certificate  file with a certificate and its private key, for TLS
    """
    ended = threading.Event()
    started: Future[Server | None] = Future()

    def serve() -> None:
        try:
            server = _server(make_app(), certificate)
            started.set_result(server)
            server.run(sockets=[listener])
        finally:
            if not started.done():
                started.set_result(None)
            ended.set()

    threading.Thread(target=serve, name=thread_name, daemon=True).start()
    try:
        yield ended
    finally:
        server = started.result()
        if server is not None:
            server.should_exit = True
            ended.wait(SHUTDOWN_WAIT_S)


def _server(app: ASGIApp, certificate: Path | None) -> Server:
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            access_log=False,
            log_config=None,  # it would set the level anew for each of several servers, and let them talk meanwhile
            log_level="error",
            server_header=False,
            loop="asyncio",  # the same on all machines, whether uvloop is installed or not
            lifespan="off",
            timeout_graceful_shutdown=1,
            ws="none",
            http="auto" if certificate is None else "h11",  # strangers send to it: httptools takes heads of any length
            ssl_certfile=certificate,
        )
    )


def listen(
    port: int, host: str = HOST, option: str = "--port", kind: type[socket.socket] = socket.socket
) -> socket.socket:
    """A listening socket of this kind.

    option  names the port on the command line

    The protocol IPPROTO_TCP is explicit, since only then asyncio sets TCP_NODELAY; without it, small responses would
    take 40 ms longer.
    """
    listener = kind(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen()
    except OverflowError:
        listener.close()
        raise InputError(f"port is {port}; it must be from 1 to 65535, or 0 for any that is free.") from None
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise InputError(f"{host} is no address of this machine; name one that it has in your network.") from None
        reason = error.strerror
        raise ServiceError(
            f"port {port} cannot be used ({reason}); name another with {option}, or 0 for any."
        ) from None
    return listener


__all__ = ["OpenPage", "open_page"]


@contextmanager
def open_page(
    home: Path,
    samples: Source,
    classes: Sequence[str],
    key: PrivateKey | None = None,
    *,
    existing_labels: ExistingLabels | None = None,
    instructions: Instructions | None = None,
    several: bool = False,
    port: int = 0,
    phone: PhoneAccess | None = None,
    make_opinion: Callable[[], OpinionSource] | None = None,
) -> Iterator[OpenPage]:
    """Serve the page until the context ends.

    home             the participant's folder, with documents and labels.db
    classes          names of the classes, if there is no offer; none if the offer must name them
    key              signs answers to offers
    existing_labels  labels in the sample file itself, as indices or names of classes; they are shown but not changed
    instructions     about the classes, if there is no offer; the examples are in the folder
    several          whether a sample may have several classes, if there is no offer
    port             0 for any free one
    phone            also serves the page to the participant's phone; both work on the same labels
    make_opinion     returns a model that judges the labels in the review; called when the review is opened
    """
    store = LabelStore(home / LABELS_FILE)
    try:
        one_at_a_time = threading.Lock()

        @cache
        def shared_work() -> Work:
            from truthfl.page.work import Work

            return Work(home, samples, classes, store, existing_labels, instructions, several)

        def application(access: AccessSecrets) -> ASGIApp:
            from truthfl.page.application import page

            with one_at_a_time:  # the page and the phone's page start at the same time
                work = shared_work()
            return page(work, key, access, make_opinion)

        with opened(application, port, "labeling page") as page_open:
            if phone is None:
                yield page_open
                return
            from truthfl.page.phone import open_phone_page

            with open_phone_page(application, home, phone) as phone_page:
                yield replace(page_open, phone=phone_page)
    finally:
        store.close()
