"""The operator's server and participants' nodes over TLS: who is let in, what is lost, and what is told of it."""

import asyncio.sslproto
import gc
import http.client
import http.server
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from helpers.commands import free_port
from truthfl.certificates import make_certificates
from truthfl.errors import InputError, ServiceError
from truthfl.federation.deployed import node as node_module
from truthfl.federation.deployed.job_server import CONNECTION_BUFFER, open_job_server
from truthfl.federation.deployed.mailboxes import DOCUMENT_BYTES, Mailboxes, MailboxGrid, NodeRegistry
from truthfl.federation.deployed.node import Node, NodeAnswers, admit_once, node_connection, wait_for_server
from truthfl.federation.deployed.node_connection import (
    ADMIT,
    HELLO,
    NEXT,
    REPLY,
    NodeConnection,
    NotGreetedError,
    NotLetInError,
    NotReachedError,
    signed_hello,
)
from truthfl.federation.protocol.messages import ROUND, ask_nodes, registrations
from truthfl.home.record import taken_rounds
from truthfl.ledger.signing import new_key, public_line, write_key

HOST = "127.0.0.1"
SECONDS = 15.0
OFFER = "ab" * 32
NODE = """
import sys
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from truthfl.federation.deployed.node import Node, NodeAnswers, admit_once, node_connection

def app(message, context):
    return Message(RecordDict({"me": ConfigRecord({"name": str(context.node_config["name"])})}), reply_to=message)

port, keys, name = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
connection = node_connection("127.0.0.1", port, keys / "server" / "ca.crt", keys / name)
with Node(connection, NodeAnswers(app, {"name": name}, keys)):
    print("connected", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def keys(tmp_path):
    make_certificates(tmp_path / "server")
    for name in ("ann", "bob", "stranger"):
        write_key(new_key(), tmp_path / name, name)
    return tmp_path


def line_of(keys, name):
    return (keys / f"{name}.pub").read_text(encoding="utf-8")


def name_app(message, context):
    return Message(RecordDict({"me": ConfigRecord({"name": str(context.node_config["name"])})}), reply_to=message)


def long_app(message, _context):
    return Message(RecordDict({"me": ConfigRecord({"name": "x" * 2 * DOCUMENT_BYTES})}), reply_to=message)


def node_of(keys, name, port, app=name_app, tell=lambda _: None):
    connection = node_connection(HOST, port, keys / "server" / "ca.crt", keys / name)
    return Node(connection, NodeAnswers(app, {"name": name}, keys), tell)


def names_of(grid, *, timeout=SECONDS):
    """By node id: what the connected nodes answer."""
    questions = [Message(RecordDict(), node, "query.whoami") for node in grid.get_node_ids()]
    replies = ask_nodes(grid, questions, timeout=timeout)
    return {node: "error" if reply.has_error() else str(reply.content["me"]["name"]) for node, reply in replies}


def wait(happened):
    end = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_registered_keys_are_let_in_over_tls_and_answer(keys):
    with open_job_server(HOST, 0, keys / "server") as server:
        ids = {name: server.registry.register(line_of(keys, name), name).node_id for name in ("ann", "bob")}
        with node_of(keys, "ann", server.port), node_of(keys, "bob", server.port):
            wait(lambda: len(server.grid.get_node_ids()) == 2)
            assert names_of(server.grid) == {ids["ann"]: "ann", ids["bob"]: "bob"}
            lines = {name: " ".join(line_of(keys, name).split()[:2]) for name in ids}
            assert registrations(server.grid) == {ids[name]: (name, lines[name]) for name in ids}
        wait(lambda: server.grid.get_node_ids() == [])  # they said that they leave
        assert server.requests.tokens == {}


def test_somebody_who_is_not_let_in_is_told_so_at_once_on_both_sides(keys):
    noted = []
    make_certificates(keys / "another")
    with open_job_server(HOST, 0, keys / "server", note=lambda *what: noted.append(what)) as server:
        server.registry.register(line_of(keys, "ann"), "ann")
        started = time.monotonic()
        with pytest.raises(NotLetInError, match=r"does not know your key: send them your \.pub file"):
            node_of(keys, "stranger", server.port).__enter__()
        wrong = node_connection(HOST, server.port, keys / "another" / "ca.crt", keys / "ann")
        with pytest.raises(NotLetInError, match=r"another/ca.crt does not vouch for the server at 127"):
            wrong.greet()
        with pytest.raises(NotLetInError, match=r"speaks TLS; name the operator's certificate: --root ca.crt"):
            NodeConnection(HOST, server.port, None, new_key()).greet()
        assert time.monotonic() - started < 5.0
        wait(lambda: len(noted) == 3)
    assert {address for address, _ in noted} == {HOST}
    said = " | ".join(reason for _, reason in noted)
    assert re.search(r"a key that is not registered \(…\S{12}\)", said)
    assert "does not trust this server's certificate; it needs your ca.crt" in said
    assert "does not speak TLS" in said


def test_a_server_without_tls_is_told_as_such(keys):
    with open_job_server(HOST, 0, None) as server:
        connection = node_connection(HOST, server.port, keys / "server" / "ca.crt", keys / "ann")
        with pytest.raises(NotLetInError, match="does not speak TLS; leave --root out"):
            connection.greet()
        open_to_all = NodeConnection(HOST, server.port, None, new_key())
        open_to_all.greet()  # on this machine, without keys, whoever comes
        assert open_to_all.node_id > 1
        open_to_all.leave()


def test_a_server_of_another_kind_is_told_as_such(keys):
    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.send_error(404)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer((HOST, 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        try:
            connection = node_connection(HOST, other.server_port, None, keys / "ann")
            with pytest.raises(ServiceError, match=f"{other.server_port} is not a truthfl server"):
                wait_for_server(connection, print)
            connection.close()
        finally:
            other.shutdown()


def test_without_tls_on_the_loopback_interface_alone(keys):
    with pytest.raises(InputError, match="needs TLS"), open_job_server("0.0.0.0", 0, None):
        pass
    with pytest.raises(InputError, match="needs TLS"):
        node_connection("fl.example.org", 8000, None, keys / "ann")


def test_what_cannot_be_started_is_a_sentence(keys):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"{HOST}:{port} cannot be listened at: Address already in use"):
            open_job_server(HOST, port, keys / "server").__enter__()
    with pytest.raises(InputError, match="not for fl"):
        open_job_server("fl.example.org", 0, keys / "server").__enter__()
    with pytest.raises(InputError, match="cannot be read"):
        open_job_server(HOST, 0, keys).__enter__()


def test_connections_keep_small_buffers_while_the_server_listens(keys):
    """Two of them a node, and 256 KB each would be half a gigabyte with a thousand nodes."""
    before = asyncio.sslproto.SSLProtocol.max_size
    known = {"ann": line_of(keys, "ann")}
    with open_job_server(HOST, 0, keys / "server", known) as server, node_of(keys, "ann", server.port):
        wait(lambda: server.grid.get_node_ids())
        assert list(names_of(server.grid).values()) == ["ann"]
        tls = [one for one in gc.get_objects() if isinstance(one, asyncio.sslproto.SSLProtocol)]
        assert [len(one._ssl_buffer) for one in tls] == [CONNECTION_BUFFER] * len(tls)
        assert len(tls) >= 2
    assert asyncio.sslproto.SSLProtocol.max_size == before


def test_a_node_that_leaves_is_missed_at_once_and_one_that_is_silent_now_and_then(monkeypatch):
    monkeypatch.setattr("truthfl.federation.deployed.mailboxes.LOST_CHECK_SECONDS", 1000.0)
    boxes, registry, looked = Mailboxes(), NodeRegistry(closed=False), []
    lost = boxes.lost
    monkeypatch.setattr(boxes, "lost", lambda ids: looked.append(1) or lost(ids))
    grid, nodes = MailboxGrid(boxes, registry), (7, 8, 9)
    for node in nodes[:2]:
        boxes.begin_waiting(node, print)
    asked = list(grid.push_messages([Message(RecordDict(), node, "query.whoami") for node in nodes]))
    missing = [reply.metadata.reply_to_message_id for reply in grid.pull_messages(asked)]
    assert missing == asked[2:]  # nobody is connected as node 9
    assert [list(grid.pull_messages(asked[:2])) for _ in range(3)] == [[], [], []]
    assert len(looked) == 1
    boxes.end_waiting(8, print)
    boxes.disconnect(8)
    (reply,) = grid.pull_messages(asked[:2])
    assert reply.has_error()
    assert reply.metadata.reply_to_message_id == asked[1]
    assert len(looked) == 2


def test_a_node_that_ends_sends_its_last_reply_first_and_one_that_is_interrupted_does_not_wait(keys):
    began = threading.Event()

    def slow_app(message, context):
        began.set()
        time.sleep(1.0)
        return name_app(message, context)

    def replies_when(ends):
        found, asked = [], threading.Thread(target=lambda: found.append(names_of(server.grid)))
        with suppress(KeyboardInterrupt), node_of(keys, "ann", server.port, slow_app):
            wait(lambda: server.grid.get_node_ids())
            began.clear()
            asked.start()
            assert began.wait(SECONDS)
            ends()
        asked.join(SECONDS)
        return list(found[0].values())

    def interrupt():
        raise KeyboardInterrupt

    with open_job_server(HOST, 0, keys / "server") as server:
        server.registry.register(line_of(keys, "ann"), "ann")
        assert replies_when(lambda: None) == ["ann"]
        assert replies_when(interrupt) == ["error"]


def test_a_killed_node_is_missed_and_comes_back_with_the_same_id(keys, monkeypatch):
    monkeypatch.setattr("truthfl.federation.deployed.mailboxes.GRACE_SECONDS", 0.5)
    with open_job_server(HOST, 0, keys / "server") as server:
        known = server.registry.register(line_of(keys, "ann"), "ann").node_id
        words = [sys.executable, "-c", NODE, str(server.port), str(keys), "ann"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "connected\n"
            wait(lambda: server.grid.get_node_ids() == [known])
            os.kill(process.pid, signal.SIGSTOP)  # so that it gets the message and does not answer
            killer = threading.Timer(0.3, process.kill)
            killer.start()
            started = time.monotonic()
            assert names_of(server.grid) == {known: "error"}
            assert time.monotonic() - started < SECONDS / 2  # it is not waited for to the end
        wait(lambda: server.grid.get_node_ids() == [])
        with node_of(keys, "ann", server.port):
            wait(lambda: server.grid.get_node_ids() == [known])
            assert names_of(server.grid) == {known: "ann"}


def test_a_server_that_is_started_again_is_found_again(keys, monkeypatch):
    monkeypatch.setattr(node_module, "LAST_RETRY_SECONDS", 0.3)
    port, told, reached = free_port(), [], []
    with open_job_server(HOST, port, keys / "server") as server:
        server.registry.register(line_of(keys, "ann"), "ann")
        node = node_of(keys, "ann", port, tell=told.append)
        node.connection.reached = reached.append
        node.__enter__()
        wait(lambda: server.grid.get_node_ids())
        assert reached[-1]
    wait(lambda: not reached[-1])
    wait(lambda: told == [node_module.LOST])
    with open_job_server(HOST, port, keys / "server", {"ann": line_of(keys, "ann")}) as server:
        known = node.connection.node_id
        wait(lambda: server.grid.get_node_ids() == [known])
        assert names_of(server.grid) == {known: "ann"}
        assert told[1] == node_module.AGAIN
        assert reached[-1]
        assert node.failed is None
        node.__exit__()


@pytest.mark.parametrize("first", ["send_reply", "next_message"])
def test_a_server_that_is_started_again_is_heard_at_once_whichever_thread_greets_it(keys, monkeypatch, first):
    """The old server's messages had higher numbers than the new one's have."""
    monkeypatch.setattr(node_module, "LAST_RETRY_SECONDS", 0.3)
    port, other = free_port(), {"send_reply": "next_message", "next_message": "send_reply"}[first]
    may_answer, asked = threading.Event(), threading.Event()

    def slow_app(message, context):
        if message.metadata.message_type == "query.slow":
            asked.set()
            may_answer.wait(SECONDS)
        return name_app(message, context)

    public = {"ann": line_of(keys, "ann")}
    with open_job_server(HOST, port, keys / "server", public) as server:
        node = node_of(keys, "ann", port, slow_app)
        node.__enter__()
        wait(lambda: server.grid.get_node_ids())
        for _ in range(5):
            assert len(names_of(server.grid)) == 1
        server.grid.push_messages([Message(RecordDict(), node.connection.node_id, "query.slow")])
        assert asked.wait(SECONDS)
        old, own = node.connection.token, getattr(node.connection, other)

        def after_the_first(*arguments):
            if node.connection.token == old:
                raise NotReachedError
            return own(*arguments)

        monkeypatch.setattr(node.connection, other, after_the_first)
    may_answer.set()
    with open_job_server(HOST, port, keys / "server", public) as server:
        wait(lambda: server.grid.get_node_ids())
        assert set(names_of(server.grid, timeout=5.0).values()) == {"ann"}
        node.__exit__()


def test_a_second_node_with_the_same_key_is_refused_while_the_first_is_there(keys, monkeypatch):
    monkeypatch.setattr(node_module, "KEY_IN_USE_SECONDS", 0.2)
    with open_job_server(HOST, 0, keys / "server") as server:
        server.registry.register(line_of(keys, "ann"), "ann")
        with node_of(keys, "ann", server.port):
            wait(lambda: server.grid.get_node_ids())
            with pytest.raises(ServiceError, match="one computer at a time can be"):
                node_of(keys, "ann", server.port).__enter__()


def test_a_failing_app_is_an_error_reply_and_its_log_has_the_rest(keys):
    def app(message, _context):
        if message.metadata.message_type.endswith("whoami"):
            raise InputError("there is no such name.")
        raise KeyError("secret")

    with open_job_server(HOST, 0, keys / "server") as server:
        known = server.registry.register(line_of(keys, "ann"), "ann").node_id
        with node_of(keys, "ann", server.port, app):
            wait(lambda: server.grid.get_node_ids())
            questions = [Message(RecordDict(), known, f"query.{action}") for action in ("whoami", "other")]
            replies = [reply for _, reply in ask_nodes(server.grid, questions, timeout=SECONDS)]
    assert [reply.error.reason for reply in replies] == [
        "there is no such name.",
        "the participant's computer failed to answer; its log says why",
    ]
    assert "KeyError: 'secret'" in (keys / "node.log").read_text(encoding="utf-8")


def post(server, keys, path, body=b"{}", token=""):
    trust = ssl.create_default_context(cafile=keys / "server" / "ca.crt")
    asked = http.client.HTTPSConnection(HOST, server.port, timeout=SECONDS, context=trust)
    asked.request("POST", path, body, {"Authorization": f"Bearer {token}"} if token else {})
    response = asked.getresponse()
    found = response.status, response.read()
    asked.close()
    return found


def test_strange_requests_get_nothing(keys):
    with open_job_server(HOST, 0, keys / "server") as server:
        server.registry.register(line_of(keys, "ann"), "ann")
        for path in ("/", "/v1/control/start-run", "/v1/runtime/acquire-task", "/docs", "/v1/fleet/pull-messages"):
            assert post(server, keys, path)[0] == http.client.NOT_FOUND
        for path in (f"{NEXT}?after=0", f"{REPLY}?message=x"):
            assert post(server, keys, path)[0] == http.client.UNAUTHORIZED
            assert post(server, keys, path, token="0" * 48)[0] == http.client.UNAUTHORIZED
        for body in (b"", b"[]", b"\xff", b"[" * 10_000, b'{"nonce": 1}', b'{"nonce": "x", "public_key": "y"}'):
            assert post(server, keys, HELLO, body)[0] in (400, 401, 403)
        assert post(server, keys, HELLO, b" " * 30_000)[0] == http.client.REQUEST_ENTITY_TOO_LARGE
        assert post(server, keys, ADMIT)[0] == http.client.FORBIDDEN
        with node_of(keys, "ann", server.port, long_app) as node:
            token = node.connection.token
            assert post(server, keys, f"{NEXT}?after=x", token=token)[0] == http.client.BAD_REQUEST
            unasked = post(server, keys, f"{REPLY}?message=x", b"bytes", token)[1]
            assert json.loads(unasked) == {"taken": False, "longest": 0}
            wait(lambda: server.grid.get_node_ids())
            assert names_of(server.grid) == {node.connection.node_id: "error"}  # it is too long
            assert node.failed is None


def test_a_signature_is_good_once_and_for_one_server(keys):
    with open_job_server(HOST, 0, keys / "server") as server:
        key = new_key()
        server.registry.register(public_line(key), "ann")
        nonce = json.loads(post(server, keys, HELLO, json.dumps({"public_key": public_line(key)}).encode())[1])["nonce"]
        elsewhere = json.dumps(signed_hello(key, nonce, "0" * 64)).encode()
        assert post(server, keys, HELLO, elsewhere)[0] == http.client.FORBIDDEN
        nonce = json.loads(post(server, keys, HELLO, b"{}")[1])["nonce"]
        good = json.dumps(signed_hello(key, nonce, server.requests.fingerprint)).encode()
        assert post(server, keys, HELLO, good)[0] == http.client.OK
        assert post(server, keys, HELLO, good)[0] == http.client.UNAUTHORIZED


def test_a_node_notes_which_of_its_reports_the_server_took(keys):
    """One that comes when the round is over is none of them."""
    sent, late = threading.Event(), threading.Event()

    def report_app(message, _context):
        round_ = message.content["asked"]["round"]
        if round_ == 1:
            sent.set()
            late.wait(SECONDS)
        return Message(RecordDict({ROUND: ConfigRecord({"offer": OFFER, "round": round_})}), reply_to=message)

    def question(node, round_):
        return Message(RecordDict({"asked": ConfigRecord({"round": round_})}), node, "train")

    (keys / "rounds").mkdir()
    with (
        open_job_server(HOST, 0, keys / "server", {"ann": line_of(keys, "ann")}) as server,
        node_of(keys, "ann", server.port, report_app),
    ):
        wait(lambda: server.grid.get_node_ids())
        (node,) = server.grid.get_node_ids()
        assert len(ask_nodes(server.grid, [question(node, 0)], timeout=SECONDS)) == 1
        given_up = server.grid.push_messages([question(node, 1)])
        assert sent.wait(SECONDS)
        server.grid.withdraw(given_up)
        late.set()
        assert len(ask_nodes(server.grid, [question(node, 2)], timeout=SECONDS)) == 1
    assert taken_rounds(keys, OFFER) == {0, 2}


def test_a_reply_that_is_no_message_is_an_error_reply():
    with open_job_server(HOST, 0, None) as server:
        known = server.registry.register(public_line(new_key()), "ann").node_id
        (message_id,) = server.grid.push_messages([Message(RecordDict(), known, "query.whoami")])
        server.grid.mailboxes.put_reply(known, message_id, b"\xff no protobuf")
        (reply,) = server.grid.pull_messages([message_id])
        assert reply.has_error()
        assert reply.metadata.reply_to_message_id == message_id


def test_nodes_answer_and_those_that_do_not_are_missing():
    class Nodes:
        """Node 1 answers, for node 2 Flower says that it is gone, node 3 says nothing, node 4 was not reached."""

        def push_messages(self, messages):
            return [
                f"to {message.metadata.dst_node_id}" if message.metadata.dst_node_id < 4 else "" for message in messages
            ]

        def pull_messages(self, numbers):
            assert set(numbers) <= {"to 1", "to 2", "to 3"}
            return [_reply(number) for number in numbers if number != "to 3"]

    questions = [SimpleNamespace(metadata=SimpleNamespace(dst_node_id=node)) for node in (1, 2, 3, 4)]
    replies = ask_nodes(Nodes(), questions, timeout=0.05, poll_seconds=0.01)
    assert [(node, reply.metadata.reply_to_message_id) for node, reply in replies] == [(1, "to 1"), (2, "to 2")]


def _reply(number):
    return SimpleNamespace(metadata=SimpleNamespace(reply_to_message_id=number, src_node_id=1))


def test_a_server_that_goes_away_in_the_middle_of_a_greeting_is_greeted_again(keys, monkeypatch):
    """It was killed, and is there again, with other numbers to sign."""
    monkeypatch.setattr(node_module, "GREET_AGAIN_SECONDS", 0.01)
    greet, failures = NodeConnection.greet, [NotGreetedError, NotReachedError]
    invitation = SimpleNamespace(name="ann", code="x")
    monkeypatch.setattr("truthfl.federation.deployed.node.RETRY_SECONDS", 0.01)

    def interrupted(connection, *_):
        if failures:
            raise failures.pop()
        greet(connection)

    monkeypatch.setattr(NodeConnection, "greet", interrupted)
    with open_job_server(HOST, 0, keys / "server", {"ann": line_of(keys, "ann")}) as server:
        with node_of(keys, "ann", server.port) as node:
            wait(lambda: server.grid.get_node_ids() == [node.connection.node_id])
        assert failures == []
        failures += [NotReachedError, NotReachedError]
        monkeypatch.setattr(NodeConnection, "admit", interrupted)
        connection = node_connection(HOST, server.port, keys / "server" / "ca.crt", keys / "ann")
        admit_once(connection, invitation)
        connection.leave()
        assert failures == []
