"""What strangers cannot do at the server's port: hold connections, fill its memory, use up greetings, get admitted."""

import http.client
import json
import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from truthfl.certificates import make_certificates
from truthfl.errors import InputError
from truthfl.federation.deployed import admission as known_keys
from truthfl.federation.deployed import node_requests
from truthfl.federation.deployed import node_requests as asgi_messages
from truthfl.federation.deployed import node_requests as connection_limits
from truthfl.federation.deployed.admission import KnownKeys
from truthfl.federation.deployed.job_server import open_job_server
from truthfl.federation.deployed.node import Node, NodeAnswers, node_connection
from truthfl.federation.deployed.node_connection import ADMIT, HELLO, NEXT, REPLY, NotLetInError, signed_hello
from truthfl.federation.deployed.node_requests import OpenConnections
from truthfl.federation.protocol.messages import ask_nodes
from truthfl.ledger.book import open_ledger
from truthfl.ledger.command_rows import NO_INVITATION, admission_faults, admitted_keys, give_command
from truthfl.ledger.commands import INVITE, code_digest, new_command
from truthfl.ledger.job_view import job_view
from truthfl.ledger.signing import new_key, public_line, write_key

HOST, SECONDS = "127.0.0.1", 15.0
STARTS = (
    None,  # no handshake
    b"",
    b"POST / HTTP/1.1\r\nHost:",
    f"POST {HELLO} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{{".encode(),
)


@pytest.fixture
def keys(tmp_path):
    make_certificates(tmp_path / "server")
    write_key(new_key(), tmp_path / "ann", "ann")
    return tmp_path


@pytest.fixture
def server(keys):
    line = (keys / "ann.pub").read_text(encoding="utf-8")
    with open_job_server(HOST, 0, keys / "server", {"ann": line}) as opened:
        yield opened


def node_of(keys, server):
    def app(message, _context):
        return Message(RecordDict({"me": ConfigRecord({"name": "ann"})}), reply_to=message)

    connection = node_connection(HOST, server.port, keys / "server" / "ca.crt", keys / "ann")
    return Node(connection, NodeAnswers(app, {}, keys))


def answers(server):
    questions = [Message(RecordDict(), node, "query.whoami") for node in server.grid.get_node_ids()]
    return [not reply.has_error() for _, reply in ask_nodes(server.grid, questions, timeout=SECONDS)]


def wait(happened):
    end = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def stranger(keys, server, start=b""):
    plain = socket.create_connection((HOST, server.port), SECONDS)
    if start is None:
        return plain
    trust = ssl.create_default_context(cafile=keys / "server" / "ca.crt")
    made = trust.wrap_socket(plain, server_hostname=HOST)
    made.sendall(start)
    return made


def is_open(own):
    own.settimeout(0.0)
    try:
        while own.recv(1000):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        pass
    return False


def post(keys, server, path, body=b"{}", token=""):
    trust = ssl.create_default_context(cafile=keys / "server" / "ca.crt")
    asked = http.client.HTTPSConnection(HOST, server.port, timeout=SECONDS, context=trust)
    asked.request("POST", path, body, {"Authorization": f"Bearer {token}"} if token else {})
    response = asked.getresponse()
    found = response.status, response.read()
    asked.close()
    return found


def test_connections_on_which_nothing_comes_are_closed(keys, monkeypatch):
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 0.5)
    monkeypatch.setattr(connection_limits, "HANDSHAKE_SECONDS", 0.5)
    monkeypatch.setattr(asgi_messages, "DOCUMENT_SECONDS", 0.5)
    line = (keys / "ann.pub").read_text(encoding="utf-8")
    with open_job_server(HOST, 0, keys / "server", {"ann": line}) as server, ExitStack() as stack:
        held = [stack.enter_context(stranger(keys, server, start)) for start in STARTS for _ in range(10)]
        held.append(stack.enter_context(stranger(keys, server, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")))
        assert held[-1].recv(1000).startswith(b"HTTP/1.1 200")
        held[-1].sendall(b"GET ")  # half of a second request
        with node_of(keys, server):
            wait(lambda: server.grid.get_node_ids())
            wait(lambda: not any(map(is_open, held)))
            assert answers(server) == [True]  # this one waits for longer than that, and is not closed


def test_the_oldest_idle_connections_give_way_and_nodes_stay(keys, server):
    server.requests.connections.most = 10
    with node_of(keys, server), ExitStack() as stack:
        wait(lambda: server.requests.connections.at_work)
        at_work = server.requests.connections.at_work
        held = [stack.enter_context(stranger(keys, server)) for _ in range(40)]
        wait(lambda: sum(map(is_open, held)) <= 10)
        assert server.requests.connections.at_work == at_work
        assert answers(server) == [True]


def test_idle_connections_are_counted_until_they_are_closed():
    closed = []
    connections = OpenConnections(most=2)
    for number in range(3):
        transport = SimpleNamespace(abort=lambda number=number: closed.append(number))
        connections.add((HOST, number), transport)
        if number == 0:
            connections.begin_work((HOST, number))
    assert closed == []
    connections.end_work((HOST, 0))  # as the newest
    assert closed == [1]
    connections.remove((HOST, 2))
    connections.add((HOST, 4), SimpleNamespace(abort=lambda: None))
    assert closed == [1]


def test_heads_without_end_are_cut_off(keys, server, monkeypatch):
    monkeypatch.setattr(connection_limits, "HEAD_SECONDS", 10 * SECONDS)
    for start in (
        f"POST {HELLO} HTTP/1.1\r\nHost: a\r\nx: ".encode(),
        b"POST /",
        f"POST {HELLO} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: ".encode(),
    ):
        with stranger(keys, server, start) as own:
            with suppress(OSError):
                own.sendall(b"x" * 1_000_000)
            wait(lambda own=own: not is_open(own))
    assert post(keys, server, HELLO)[0] == http.client.OK


def test_a_long_reply_is_no_long_head(keys, server):
    with node_of(keys, server) as node:
        token = node.connection.token
        status, said = post(keys, server, f"{REPLY}?message=x", b"x" * node_requests.MOST_DROPPED_BYTES, token)
    assert (status, json.loads(said)) == (http.client.OK, {"taken": False, "longest": 0})


def asked(server, node, most=1000):
    """The id of a message that waits for an answer of this node, which may have so many bytes."""
    server.grid.mailboxes.put(node, "m", Message(RecordDict(), node, "query.whoami"), most)
    return "m"


def head(token, message, length):
    start = f"POST {REPLY}?message={message} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
    return f"{start}Content-Length: {length}\r\n\r\n".encode()


def told(own):
    own.settimeout(SECONDS)
    return json.loads(own.recv(10_000).partition(b"\r\n\r\n")[2] or own.recv(10_000))


@pytest.fixture
def greeted(keys, server):
    connection = node_connection(HOST, server.port, keys / "server" / "ca.crt", keys / "ann")
    connection.greet()
    yield connection
    connection.leave()


@pytest.mark.parametrize(("message", "longest"), [("x", 0), ("m", 1000)])
def test_a_reply_that_nobody_waits_for_or_that_is_too_long_is_refused_before_it_is_sent(
    keys, server, greeted, message, longest
):
    asked(server, greeted.node_id)
    with stranger(keys, server, head(greeted.token, message, 16_000_000)) as own:
        assert told(own) == {"taken": False, "longest": longest}
        wait(lambda: not is_open(own))
    assert server.grid.mailboxes.held_bytes == 0


def test_a_node_learns_that_its_long_reply_is_not_waited_for_any_more(keys, server, greeted):
    assert greeted.send_reply("x", b"x" * 5_000_000) is False
    asked(server, greeted.node_id)
    with pytest.raises(InputError, match="takes at most 1,000 bytes here; the reply has 5,000,000"):
        greeted.send_reply("m", b"x" * 5_000_000)
    assert json.loads(post(keys, server, f"{REPLY}?message=m", b"x" * 1000, greeted.token)[1])["taken"]


def test_a_reply_must_come_in_time_and_may_be_sent_again(keys, server, greeted, monkeypatch):
    asked(server, greeted.node_id)
    boxes = server.grid.mailboxes
    with stranger(keys, server, head(greeted.token, "m", 900) + b"x") as slow:
        wait(lambda: boxes.held_bytes == 900)
        greeted.send_reply("m", b"y" * 900)  # of the same node, on another connection: the earlier one is given up
        assert told(slow) == {"error": "your reply took too long."}
    assert boxes.take_replies(["m"])["m"].content == b"y" * 900
    monkeypatch.setattr(node_requests, "REPLY_SECONDS", 0.2)
    asked(server, greeted.node_id)
    with stranger(keys, server, head(greeted.token, "m", 900) + b"x") as slow:
        assert told(slow) == {"error": "your reply took too long."}
        wait(lambda: not is_open(slow))
    assert boxes.held_bytes == 0


def test_replies_wait_for_room(server, greeted, monkeypatch):
    asked(server, greeted.node_id)
    boxes = server.grid.mailboxes
    monkeypatch.setattr("truthfl.federation.deployed.mailboxes.MOST_HELD_BYTES", 1000)
    assert boxes.make_room(1000)

    def send():
        greeted.send_reply("m", b"y" * 900)
        greeted.close()  # a thread has a connection of its own

    thread = threading.Thread(target=send)
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    boxes.give_room_back(1000)
    thread.join(SECONDS)
    assert boxes.take_replies(["m"])["m"].content == b"y" * 900


def test_many_who_ask_for_numbers_keep_nobody_from_greeting(keys, server, monkeypatch):
    monkeypatch.setattr(node_requests, "MOST_NONCES", 5)
    first = json.loads(post(keys, server, HELLO)[1])["nonce"]
    for _ in range(5):
        assert post(keys, server, HELLO)[0] == http.client.OK
    assert len(server.requests.nonces) == 5
    greeting = json.dumps(signed_hello(new_key(), first, server.requests.fingerprint)).encode()
    assert post(keys, server, HELLO, greeting)[0] == http.client.UNAUTHORIZED  # the oldest is forgotten
    with node_of(keys, server):
        wait(lambda: server.grid.get_node_ids())


def test_a_number_that_was_not_given_is_refused_on_a_machine_that_just_started(keys, server, monkeypatch):
    monkeypatch.setattr(node_requests, "time", SimpleNamespace(monotonic=lambda: 5.0))
    key = new_key()
    server.registry.register(public_line(key), "bob")
    greeting = json.dumps(signed_hello(key, "0" * 32, server.requests.fingerprint)).encode()
    assert post(keys, server, HELLO, greeting)[0] == http.client.UNAUTHORIZED


def test_a_key_that_takes_the_place_of_another_ends_it(keys, server):
    """As of a thief who used an invitation first, when the invited is admitted by another one."""
    thief = node_connection(HOST, server.port, keys / "server" / "ca.crt", keys / "ann")
    thief.greet()
    server.registry.register(public_line(new_key()), "ann")
    assert post(keys, server, f"{NEXT}?after=0", token=thief.token)[0] == http.client.UNAUTHORIZED
    with pytest.raises(NotLetInError, match="does not know your key"):
        thief.greet()
    thief.close()


def test_a_node_has_so_many_requests_at_a_time(keys, server, monkeypatch):
    monkeypatch.setattr(node_requests, "MOST_REQUESTS", 2)
    with node_of(keys, server) as node, ExitStack() as stack:  # one of its requests waits
        wait(lambda: server.grid.get_node_ids())
        token = node.connection.token
        half = f"POST {NEXT}?after=0 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nContent-Length: 9\r\n\r\nx"
        stack.enter_context(stranger(keys, server, half.encode()))
        wait(lambda: server.requests.under_way.total() == 2)
        assert post(keys, server, f"{NEXT}?after=0", token=token)[0] == http.client.SERVICE_UNAVAILABLE
    wait(lambda: server.requests.under_way.total() == 0)


@pytest.fixture
def invited(tmp_path):
    """A ledger in which Ada is invited by the code "good", and Zoe, who is not among the clients, by "other"."""
    operator = new_key()
    with open_ledger(str(tmp_path / "ledger.db"), operator) as ledger:
        ledger.append("job", "job", "job", {"operator_key": public_line(operator)})
        for name, code in (("Ada", "good"), ("Zoe", "other")):
            fields = {"name": name, "code_digest": code_digest(code), "expires": "2999-01-01T00:00:00+00:00"}
            give_command(
                ledger, "job", operator, lambda fields=fields: new_command(INVITE, "job", "operator", **fields)
            )
        (tmp_path / "people").mkdir()
        yield KnownKeys(ledger, "job", tmp_path / "people", ("Ada", "Ben"))


def test_an_invitation_admits_one_key_of_a_client(invited):
    ada, thief = public_line(new_key()), public_line(new_key())
    for name, code in (("Ada", "bad"), ("Ben", "good"), ("Zoe", "other"), ("Ada", "\ud800"), ("Ada", "x" * 1000)):
        with pytest.raises(InputError, match=NO_INVITATION):
            invited.admit({"name": name, "code": code, "public_key": thief})
    assert invited.look_up(ada) is None
    assert invited.admit({"name": "Ada", "code": "good", "public_key": ada}) == "Ada is admitted."
    assert invited.look_up(ada) == "Ada"  # at once
    with pytest.raises(InputError, match="was used already"):
        invited.admit({"name": "Ada", "code": "good", "public_key": thief})
    assert invited.look_up(thief) is None
    view = job_view("job", invited.ledger.entries())
    assert list(admission_faults(view)) == []


@pytest.mark.parametrize(
    "forged",
    [
        {"invitation": code_digest("good"), "code": "bad"},
        {"invitation": code_digest("mine"), "code": "mine"},
        {"invitation": code_digest("good")},
        {"invitation": code_digest("good"), "code": ["good"]},
    ],
)
def test_a_row_without_the_code_admits_nobody(invited, forged, monkeypatch):
    monkeypatch.setattr(known_keys, "LOOK_UP_SECONDS", -1.0)
    thief = public_line(new_key())
    invited.ledger.append("job", "admission", forged["invitation"], {"client": "Ada", "public_key": thief} | forged)
    assert invited.look_up(thief) is None
    view = job_view("job", invited.ledger.entries())
    assert admitted_keys(view) == {}
    assert len(list(admission_faults(view))) == 1


def test_keys_of_strangers_do_not_have_the_ledger_read_each_time(invited, monkeypatch):
    reads = []
    monkeypatch.setattr(KnownKeys, "lines", lambda _: reads.append(1) or {})
    monkeypatch.setattr(known_keys, "LOOK_UP_SECONDS", 60.0)
    for _ in range(10):
        assert invited.look_up(public_line(new_key())) is None
    assert len(reads) == 1


def test_nonsense_about_invitations_gets_a_sentence(keys, invited):
    with open_job_server(HOST, 0, keys / "server", admit=invited.admit) as server:
        for document in (
            {},
            {"name": "Ada", "code": "\ud800", "public_key": "x"},
            {"name": ["Ada"], "code": {}},
            {"name": "Ada", "code": "good", "public_key": "\ud800"},
        ):
            status, said = post(keys, server, ADMIT, json.dumps(document).encode())
            assert status == http.client.FORBIDDEN
            assert json.loads(said)["error"]
        assert post(keys, server, HELLO)[0] == http.client.OK
