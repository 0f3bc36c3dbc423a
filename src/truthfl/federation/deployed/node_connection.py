"""A node's connection to the operator's server: proof of its key, next message, reply, and health check.

The proof covers the server's certificate, so no server can pass it on to another one. It needs no clock. A request for
the next message is answered only when there is one. A separate health check detects a server that hangs.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from truthfl.errors import InputError, ServiceError
from truthfl.home.node_state import ConnectionFile
from truthfl.ledger.signing import PrivateKey, public_line, sign, signed_by

# Paths of the server. All requests are POST.
PREFIX = "/v1/fleet/truthfl/"
HELLO, NEXT, REPLY, LEAVE, ADMIT = (PREFIX + name for name in ("hello", "next", "reply", "leave", "admit"))
HEALTH = "/health"  # answered to everybody, also with GET
NUMBER_HEADER = "truthfl-number"  # of a message, in responses to NEXT
JSON, BYTES = "application/json", "application/octet-stream"


def fingerprint(certificate: bytes | None) -> str:
    """The hash of a certificate (DER) in hexadecimal; "" without TLS."""
    return "" if certificate is None else sha256(certificate).hexdigest()


def fingerprint_in(path: Path | None) -> str:
    """The fingerprint of the first certificate in this PEM file; "" without a file."""
    if path is None:
        return ""
    return fingerprint(x509.load_pem_x509_certificates(path.read_bytes())[0].public_bytes(Encoding.DER))


def signed_hello(key: PrivateKey, nonce: str, server: str) -> dict[str, str]:
    """The document with which a node proves its key.

    nonce   the number from the server
    server  the fingerprint of its certificate
    """
    return {"public_key": public_line(key), "nonce": nonce, "signature": sign(key, _content(nonce, server))}


def proves_key(hello: Mapping[str, Any], server: str) -> bool:
    """Whether an untrusted document with a nonce is signed by the key that it names, for this server."""
    return signed_by(str(hello["public_key"]), _content(str(hello["nonce"]), server), str(hello["signature"]))


def _content(nonce: str, server: str) -> dict[str, str]:
    return {"kind": "hello", "nonce": nonce, "server": server}


CONNECT_SECONDS = 5.0
READ_SECONDS = 45.0  # longer than the server holds a request for the next message
Response = tuple[int, Mapping[str, str], bytes]


# The seconds before and between keep-alive packets on a silent connection, and how many of them may go unanswered
# before the connection ends. One is enough: a reconnection loses no message.
SILENT_SECONDS, LOST_PACKETS = 1, 1
# How long sent data may stay unacknowledged. Without a limit, data that was sent during an interruption is sent again
# after ever longer pauses, long after the interruption. A long reply may occupy a slow line for longer.
UNHEARD_SECONDS, UNHEARD_SECONDS_OF_REPLIES = 1.5, 8.0


class NotReachedError(Exception):
    """The server does not answer now; a later attempt may succeed."""


class NotGreetedError(Exception):
    """The server does not know this node's token: it was restarted, or another node now has this key."""


class OtherServerError(ServiceError):
    """The server is not a truthfl server: it does not have the paths."""

    def __init__(self, address: str) -> None:
        super().__init__(f"the server at {address} is not a truthfl server; check the address.")


class NotLetInError(ServiceError):
    """The server refuses this node, and a later attempt gets the same answer."""


class ConnectedAlreadyError(Exception):
    """A node with the same key is connected, or was until a few seconds ago."""


@dataclass(eq=False)
class NodeConnection:
    """A connection of one node. Each thread that uses it has its own socket.

    root  the file of the authority's certificate; None connects without TLS
    key   the participant's
    node_id, name, token  as the server gave them when it was greeted
    reached  called after each request with whether the server answered
    """

    host: str
    port: int
    root: Path | None
    key: PrivateKey
    node_id: int = 0
    name: str = ""
    token: str = field(default="", repr=False)
    reached: Callable[[bool], None] = lambda _: None
    _own: threading.local = field(default_factory=threading.local, repr=False)
    _open: set[http.client.HTTPConnection] = field(default_factory=set, repr=False)  # of all threads

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def ask_nonce(self) -> str:
        """The server's number that a greeting must sign."""
        return str(self._json(HELLO, {"public_key": public_line(self.key)})["nonce"])

    def greet(self) -> None:
        """Prove the key and get a token."""
        nonce = self.ask_nonce()
        server = fingerprint(self._peer_certificate())
        answer = self._json(HELLO, signed_hello(self.key, nonce, server))
        self.token, self.node_id, self.name = str(answer["token"]), int(answer["node"]), str(answer["name"])

    def next_message(self, last: tuple[str, int]) -> tuple[int, bytes] | None:
        """Wait for the next message after this number; None if there was none for a while.

        last  the token of the greeting since which messages are numbered, and the last number. A restarted server that
              another thread has greeted counts from 1
        """
        token, after = last
        status, headers, body = self._request(f"{NEXT}?after={after}", b"", token)
        self._require_known(status)
        number = headers.get(NUMBER_HEADER)
        return None if number is None else (int(number), body)

    def send_reply(self, message_id: str, content: bytes) -> bool:
        """Send a reply; return whether the server took it. It does not read a reply that it no longer expects."""
        path, self._own.unheard_seconds = f"{REPLY}?message={message_id}", UNHEARD_SECONDS_OF_REPLIES
        try:
            answer = self._reply_answer(path, content)
        except NotReachedError:  # also if the server refuses data that is still being sent; a short request tells
            answer = self._reply_answer(path, b"")
            if len(content) <= answer.get("longest", 0):
                raise
        longest = answer.get("longest", 0)
        if 0 < longest < len(content):
            raise InputError(f"the server takes at most {longest:,} bytes here; the reply has {len(content):,}.")
        return answer.get("taken") is True

    def admit(self, document: Mapping[str, Any]) -> str:
        """Send an invitation's code with the key; return the server's answer."""
        return str(self._json(ADMIT, document)["admitted"])

    def answers_within(self, seconds: float) -> bool:
        """Whether the server answers a short request in this time. The calling thread must send no other requests."""
        try:
            connection = self._connection(seconds, seconds)
            connection.request("GET", HEALTH)
            answer = connection.getresponse()
            answer.read()
            return answer.status < HTTPStatus.INTERNAL_SERVER_ERROR
        except (OSError, http.client.HTTPException):
            self.close()
            return False

    def leave(self) -> None:
        """Tell the server that this node leaves; ignore a missing answer."""
        with suppress(NotReachedError, ServiceError):
            self._request(LEAVE, b"")
        self.close()
        for connection in tuple(self._open):  # their threads wait for a response that no longer comes
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close this thread's socket."""
        connection = getattr(self._own, "connection", None)
        if connection is not None:
            connection.close()
            self._own.connection = None
            self._open.discard(connection)

    def _require_known(self, status: int) -> None:
        if status == HTTPStatus.UNAUTHORIZED:
            raise NotGreetedError
        if status == HTTPStatus.NOT_FOUND:
            raise OtherServerError(self.address)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise NotReachedError

    def _reply_answer(self, path: str, content: bytes) -> dict[str, Any]:
        status, _, body = self._request(path, content)
        self._require_known(status)
        return _document(body) or {}

    def _json(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        status, _, body = self._request(path, json.dumps(document).encode())
        if status == HTTPStatus.FORBIDDEN:
            raise NotLetInError(_sentence(body))
        if status == HTTPStatus.CONFLICT:
            raise ConnectedAlreadyError
        self._require_known(status)
        answer = _document(body)
        if status != HTTPStatus.OK or answer is None:
            raise OtherServerError(self.address)
        return answer

    def _request(self, path: str, body: bytes, token: str | None = None) -> Response:
        """Send a request; if the server has closed the connection in the meantime, open it again.

        token  by default, the last greeting's
        """
        had_socket = getattr(self._own, "connection", None) is not None
        try:
            return self._request_once(path, body, token)
        except NotReachedError:
            self.reached(False)
            if not had_socket:
                raise
            return self._request_once(path, body, token)

    def _request_once(self, path: str, body: bytes, token: str | None) -> Response:
        bearer = self.token if token is None else token
        headers = {"Content-Type": JSON} | ({"Authorization": f"Bearer {bearer}"} if bearer else {})
        try:
            connection = self._connection()
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            self.reached(response.status < HTTPStatus.INTERNAL_SERVER_ERROR)
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
        except ssl.SSLCertVerificationError as error:
            self.close()
            raise NotLetInError(
                f"{self.root} does not vouch for the server at {self.address} ({error.verify_message}); "
                "use the ca.crt that the operator gave you."
            ) from None
        except ssl.SSLError as error:
            self.close()
            if "WRONG_VERSION_NUMBER" in str(error.reason) or "RECORD_LAYER" in str(error.reason):
                raise NotLetInError(
                    f"the server at {self.address} does not speak TLS; leave --root out, or check the address."
                ) from None
            raise NotReachedError from None
        except http.client.BadStatusLine:
            self.close()
            if self.root is None and self._speaks_tls():
                raise NotLetInError(
                    f"the server at {self.address} speaks TLS; name the operator's certificate: --root ca.crt."
                ) from None
            raise NotReachedError from None
        except (OSError, http.client.HTTPException):
            self.close()
            raise NotReachedError from None

    def _connection(
        self, connect_seconds: float = CONNECT_SECONDS, read_seconds: float = READ_SECONDS
    ) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            if self.root is None:
                connection = http.client.HTTPConnection(self.host, self.port, timeout=connect_seconds)
            else:
                trust = ssl.create_default_context(cafile=str(self.root))
                connection = http.client.HTTPSConnection(self.host, self.port, timeout=connect_seconds, context=trust)
            connection.connect()
            _notice_silence(connection.sock, getattr(self._own, "unheard_seconds", UNHEARD_SECONDS))
            connection.sock.settimeout(read_seconds)
            self._own.connection = connection
            self._open.add(connection)
        return connection

    def _speaks_tls(self) -> bool:
        """Whether a server that did not answer a request without TLS answers one with TLS."""
        any_certificate = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        any_certificate.check_hostname, any_certificate.verify_mode = False, ssl.CERT_NONE
        try:
            with socket.create_connection((self.host, self.port), CONNECT_SECONDS) as plain_socket:
                any_certificate.wrap_socket(plain_socket).close()
        except OSError:
            return False
        return True

    def _peer_certificate(self) -> bytes | None:
        if self.root is None:
            return None
        own = self._connection().sock
        return own.getpeercert(binary_form=True) if isinstance(own, ssl.SSLSocket) else None


def _document(body: bytes) -> dict[str, Any] | None:
    """The JSON object in a response; None if there is none."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _sentence(body: bytes) -> str:
    """The server's reason in an error response."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return "the operator's server refused this node without a reason."


def _notice_silence(opened: socket.socket, unheard_seconds: float = UNHEARD_SECONDS) -> None:
    """Let the system end a dead connection in about two seconds.

    unheard_seconds  how long it waits for an acknowledgement of sent data
    """
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", SILENT_SECONDS),
        ("TCP_KEEPINTVL", SILENT_SECONDS),
        ("TCP_KEEPCNT", LOST_PACKETS),
        ("TCP_USER_TIMEOUT", int(1000 * unheard_seconds)),
    ):
        if hasattr(socket, name):  # not on every system
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


# Together 1.5 seconds. The page asks every second, so it shows a hanging server within three seconds.
INTERVAL_SECONDS, ANSWER_SECONDS = 0.5, 1.0


@contextmanager
def watch_server(connection: NodeConnection, state: ConnectionFile) -> Iterator[None]:
    """While this context is open and somebody reads the file, note in it whether the server answers."""
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
        if not answers and not ended.is_set():  # reopen a connection that was closed after a long time without requests
            answers = time.monotonic() - began < ANSWER_SECONDS / 2 and connection.answers_within(ANSWER_SECONDS / 2)
        state.note(answers, 0.0 if answers else time.monotonic() - began)
    connection.close()
