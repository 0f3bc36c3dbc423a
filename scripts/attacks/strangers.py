"""Strangers at the server's port: others' greetings, tokens, endless bodies and heads, held connections."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from attacks.federation import HOST, Federation
from attacks.outcomes import Outcome, outcome
from truthfl.certificates import certificates_in, make_certificates
from truthfl.federation.deployed.node_connection import (
    HELLO,
    LEAVE,
    NEXT,
    REPLY,
    ConnectedAlreadyError,
    NodeConnection,
    NotLetInError,
    fingerprint_in,
    signed_hello,
)
from truthfl.federation.deployed.node_requests import allow_many_files
from truthfl.ledger.signing import PrivateKey, new_key, read_key

HELD_CONNECTIONS, HONEST_SECONDS, CLOSING_SECONDS = 900, 10.0, 40.0
MOST_MEMORY = 40_000_000  # growth of the server that endless requests may cause
MEGABYTE = b"x" * 1_000_000


def post(made: Federation, path: str, body: bytes = b"{}", token: str = "") -> tuple[int, bytes]:
    """The status and body of the server's response."""
    asked = http.client.HTTPSConnection(HOST, made.port, timeout=HONEST_SECONDS, context=trust_of(made))
    try:
        asked.request("POST", path, body, {"Authorization": f"Bearer {token}"} if token else {})
        response = asked.getresponse()
        return response.status, response.read()
    finally:
        asked.close()


def unknown_key(made: Federation, attack: str) -> Outcome:
    try:
        connection_of(made, new_key()).greet()
        said = ""
    except NotLetInError as error:
        said = str(error)
    return outcome(attack, "does not know your key" in said, f"refused: {said or 'no, it was let in'}")


def relayed_greeting(made: Federation, attack: str) -> Outcome:
    """Ada greets a false server, which has its own certificate and passes on the true server's number."""
    make_certificates(made.folder / "false-keys")
    false_server = fingerprint_in(certificates_in(made.folder / "false-keys").server)
    status, said = post(made, HELLO, json.dumps(signed_hello(_ada(made), _nonce(made), false_server)).encode())
    return outcome(attack, status == http.client.FORBIDDEN, f"refused: {said.decode()}")


def replayed_greeting(made: Federation, attack: str) -> Outcome:
    """Send again a greeting that was valid once. It is Ben's, before Ben joins."""
    key = read_key(made.folder / "people" / "Ben")
    greeting = json.dumps(signed_hello(key, _nonce(made), fingerprint_in(_files(made).server))).encode()
    first, second = post(made, HELLO, greeting), post(made, HELLO, greeting)
    post(made, LEAVE, token=json.loads(first[1])["token"])
    held = (first[0], second[0]) == (http.client.OK, http.client.UNAUTHORIZED)
    return outcome(attack, held, f"good once, then refused: {second[1].decode()}")


def old_tokens(made: Federation, attack: str) -> Outcome:
    """Send invented tokens, no token, and one from before a later greeting."""
    connection = connection_of(made, read_key(made.folder / "people" / "Ben"))
    connection.greet()
    old = connection.token
    connection.greet()
    tried = ["", *(secrets.token_hex(24) for _ in range(50)), old]
    found = [post(made, path, token=token)[0] for token in tried for path in (f"{NEXT}?after=0", f"{REPLY}?message=x")]
    connection.leave()
    held = set(found) == {http.client.UNAUTHORIZED}
    return outcome(attack, held, f"{len(found)} requests got {sorted(set(found))}")


def second_node(made: Federation, attack: str) -> Outcome:
    """Greet with Ada's key while Ada's node is connected."""
    made.wait_until(lambda: "connected" in made.log("Ada"))
    time.sleep(1.0)
    try:
        connection_of(made, _ada(made)).greet()
    except ConnectedAlreadyError:
        return outcome(attack, True, "refused while Ada's node is connected; otherwise whoever has Ada's key is Ada")
    return outcome(attack, False, "let in beside Ada's node")


def endless_requests(made: Federation, attack: str) -> Outcome:
    """Heads and bodies of up to 200 MB are not read, and the server's memory does not grow with them."""
    before, sent = memory_of(made), []
    for start in (
        f"POST {HELLO} HTTP/1.1\r\nHost: a\r\nx: ".encode(),
        f"POST {HELLO} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n".encode(),
        f"POST {REPLY}?message=x HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n".encode(),
        f"POST {HELLO} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: ".encode(),
    ):
        with _stranger(made) as own, suppress(OSError):
            own.sendall(start)
            sent.append(0)
            for _ in range(200):
                own.sendall(MEGABYTE)
                sent[-1] += 1
    grown = memory_of(made) - before
    held = grown < MOST_MEMORY and post(made, "/health")[0] == http.client.OK
    return outcome(
        attack, held, f"{sent} MB could be sent, and were not kept; the server needs {max(0, grown) / 1e6:.0f} MB more"
    )


def held_connections(made: Federation, attack: str) -> Outcome:
    """Open connections without a handshake, without a request, with half a head, with half a body."""
    allow_many_files()
    starts = (None, b"", b"POST / HTTP/1.1\r\nHost:", f"POST {HELLO} HTTP/1.1\r\nContent-Length: 9\r\n\r\n{{".encode())
    with ExitStack() as stack:
        held = []
        for number in range(HELD_CONNECTIONS):
            start = starts[number % len(starts)]
            one = socket.create_connection((HOST, made.port)) if start is None else _stranger(made)
            held.append(stack.enter_context(one))
            if start:
                one.sendall(start)
        began = time.monotonic()
        status, seconds = post(made, HELLO)[0], time.monotonic() - began
        while (left := sum(map(_is_open, held))) and time.monotonic() < began + CLOSING_SECONDS:
            time.sleep(1.0)
    closed = f"all are closed after {time.monotonic() - began:.0f} s" if not left else f"{left} stay open"
    good = status == http.client.OK and not left
    return outcome(attack, good, f"{HELD_CONNECTIONS} are held; a node is answered in {seconds:.2f} s; {closed}")


def connection_of(made: Federation, key: PrivateKey) -> NodeConnection:
    """A connection of a node with this key to the federation's server."""
    return NodeConnection(HOST, made.port, _files(made).root, key)


def _stranger(made: Federation) -> ssl.SSLSocket:
    return trust_of(made).wrap_socket(
        socket.create_connection((HOST, made.port), timeout=HONEST_SECONDS), server_hostname=HOST
    )


def _is_open(own: socket.socket) -> bool:
    """Whether the other side has not closed a connection, after reading what it sent."""
    own.settimeout(0.0)
    try:
        while own.recv(1000):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        pass
    return False


def _ada(made: Federation) -> PrivateKey:
    return read_key(made.folder / "people" / "Ada")


def _nonce(made: Federation) -> str:
    return str(json.loads(post(made, HELLO)[1])["nonce"])


def _files(made: Federation):
    return certificates_in(made.folder / "keys")


def trust_of(made: Federation) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(_files(made).root))


def memory_of(made: Federation) -> int:
    """The server's memory in bytes; 0 if the system does not report it."""
    path = Path(f"/proc/{made.processes['serve'].pid}/statm")
    return int(path.read_text(encoding="utf-8").split()[1]) * 4096 if path.exists() else 0


def while_running(made: Federation, names: set[str]) -> Iterator[Outcome]:
    """The attacks on a server that runs."""
    for attack, (_, judge) in JUDGES.items():
        if attack in names:
            yield judge(made, attack)


JUDGES: dict[str, tuple[str, Callable[[Federation, str], Outcome]]] = {
    "key-unknown": ("somebody greets with a key that the operator does not know", unknown_key),
    "greeting-relayed": ("a false server passes on the greeting that Ada signed for it", relayed_greeting),
    "greeting-replayed": ("somebody sends an overheard greeting again", replayed_greeting),
    "token-invented": ("somebody asks with invented tokens, and with an old one", old_tokens),
    "key-twice": ("a second node greets with Ada's key", second_node),
    "requests-without-end": ("somebody sends heads and bodies of 200 MB", endless_requests),
    "connections-held": ("somebody opens connections and says nothing, or half of something", held_connections),
}
ATTACKS = {name: words for name, (words, _) in JUDGES.items()}
