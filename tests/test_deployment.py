"""A real SuperLink and real SuperNodes on this machine: over TLS, known by their keys, and gone at the end."""

import http.client
import json
import os
import re
import signal
import sqlite3
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from outsiders import can_be_another_user, statuses_for_another_user
from truthfl.errors import InputError, ServiceError
from truthfl.federation.deployed.app_folder import read_run_config, write_app_folder
from truthfl.federation.deployed.certificates import make_certificates
from truthfl.federation.deployed.clock import clock_fault, seconds_ahead
from truthfl.federation.deployed.flower_servers import restart_ended, start_superlink, start_supernode
from truthfl.federation.deployed.processes import free_port, is_running
from truthfl.federation.deployed.superlink_client import (
    Connection,
    is_reachable,
    register,
    registered_nodes,
    run_log,
    run_status,
    stop_run,
    submit,
    wait_for_run,
)
from truthfl.federation.protocol.ask_nodes import ask_nodes
from truthfl.ledger.signing import new_key, read_public_line, write_key

HERE = Path(__file__).parent
HOST = "127.0.0.1"
SECONDS = 120.0
APP = "trivial_flower_app.whoami"
NAMES = {"ann": "Ann", "bob": 'Bob "the = sign" \\ ü\n', "stranger": "Sam"}
GREETING = 'it\'s "=" \\n\n'


def test_a_federation_over_tls_with_keys(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)  # the app is found as an installed one would be
    make_certificates(tmp_path / "server")
    for name in ("ann", "bob", "stranger"):
        write_key(new_key(), tmp_path / name / name, name)
    port, file = free_port(), tmp_path / "found.json"
    with ExitStack() as stack, ThreadPoolExecutor(2) as threads:
        link = start_superlink(tmp_path / "link", HOST, port, certificates=tmp_path / "server", timeout=SECONDS)
        servers = {"link": link}
        stack.callback(lambda: [server.stop() for server in reversed(servers.values())])
        nodes = {name: register(link.connection, tmp_path / name / f"{name}.pub", name) for name in ("ann", "bob")}
        assert register(link.connection, tmp_path / "ann" / "ann.pub", "ann") == nodes["ann"]
        _only_tls_and_only_from_here(link.connection, tmp_path)

        ann, stranger = (threads.submit(_start, servers, tmp_path, name, port) for name in ("ann", "stranger"))
        run = _submit(link.connection, tmp_path / "app", file)
        ann.result(timeout=SECONDS)
        with pytest.raises(ServiceError, match="Failed to activate SuperNode"):
            stranger.result(timeout=SECONDS)
        assert [(one.name, one.online) for one in registered_nodes(link.connection)] == [("ann", True), ("bob", False)]
        _wait(lambda: run_status(link.connection, run).state == "running")
        _nobody_else_submits(link.connection, tmp_path)

        os.killpg(link.children[0].process.pid, signal.SIGKILL)
        _wait(lambda: link.children[0].ended)
        bob = threads.submit(_start, servers, tmp_path, "bob", port)
        servers["link"] = link = restart_ended(link)  # and the run, still waiting for Bob, goes on
        bob.result(timeout=SECONDS)
        status = wait_for_run(link.connection, run, SECONDS)
        assert status.state == "completed", run_log(link.connection, run)
        stop_run(link.connection, run)

        found = json.loads(file.read_text(encoding="utf-8"))
        assert found["greeting"] == GREETING
        assert found["answers"] == {str(nodes[name]): NAMES[name] for name in nodes}
        keys = {name: read_public_line(tmp_path / name / f"{name}.pub") for name in nodes}
        assert found["known"] == {str(nodes[name]): [name, keys[name]] for name in nodes}
        assert {name: servers[name].node_id for name in nodes} == nodes
        assert not (tmp_path / "ann" / "flower" / "apps").exists()  # nothing of the operator's was installed
        assert _readable_by_others(tmp_path / "link", tmp_path / "ann", tmp_path / "bob") == ["ann.pub", "bob.pub"]
    for server in servers.values():
        for child in server.children:
            assert not is_running(child)


def _clocks_are_compared(connection):
    """Also as from a machine whose clock is an hour off."""

    def ahead(seconds):
        return seconds_ahead(connection.host, connection.port, connection.root, lambda: time.time() + seconds)

    least, most = ahead(0.0)
    assert least - 0.001 <= 0.0 <= most + 0.001  # it is the same clock
    assert clock_fault((least, most)) is None
    assert re.match(r"this machine's clock is 3,\d{3} seconds ahead of the server's", clock_fault(ahead(3600.0)))
    assert re.match(r"this machine's clock is 3,\d{3} seconds behind the server's", clock_fault(ahead(-3600.0)))
    assert seconds_ahead(connection.host, free_port(), connection.root) is None


def test_a_clock_that_is_eight_seconds_off_is_told_as_such():
    sentence = "this machine's clock is 8 seconds ahead of the server's; it may be 5 ahead and 305 behind: set it right"
    assert clock_fault((7.9, 8.1)) == f"{sentence} and join again."
    assert clock_fault((-400.2, -399.8)).startswith("this machine's clock is 400 seconds behind the server's; ")
    assert clock_fault((-8.1, -7.9)) is None
    assert clock_fault((4.0, 6.0)) is None  # it may be less than 5
    assert clock_fault(None) is None


def _start(servers, folder, name, port):
    keys = {"root_certificate": folder / "server" / "ca.crt", "private_key": folder / name / name}
    settings = {"node_config": {"name": NAMES[name]}, "clientapp": f"{APP}:client_app", "poll_seconds": 0.3}
    servers[name] = start_supernode(folder / name, HOST, port, **keys, **settings)


def _submit(connection, folder, file):
    settings = {"nodes": 2, "file": "", "greeting": ""}
    app = write_app_folder(folder, f"{APP}:server_app", f"{APP}:client_app", settings)
    assert read_run_config(app) == settings
    with pytest.raises(InputError, match="has no setting 'colour'"):
        submit(connection, app, {"colour": "red"})
    return submit(connection, app, {"file": str(file), "greeting": GREETING})


def _wait(what):
    end = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < end
        time.sleep(0.1)


def _only_tls_and_only_from_here(connection, folder):
    assert is_reachable(connection)
    _clocks_are_compared(connection)
    plain = Connection(connection.host, connection.port, None, folder)
    assert not is_reachable(plain)
    make_certificates(folder / "another")
    with pytest.raises(InputError, match="does not vouch"):
        is_reachable(Connection(connection.host, connection.port, folder / "another" / "ca.crt", folder))
    known = {"Authorization": f"Bearer {connection.secret}"}
    assert _status(connection, "/v1/control/list-runs", known) == http.client.OK
    assert _status(connection, "/v1/control/list-runs") == http.client.UNAUTHORIZED
    elsewhere = {"X-Forwarded-For": "192.0.2.7"}  # as a proxy on this machine tells of those it serves
    for path in ("/v1/control/list-runs", "/v1/runtime/acquire-task", "/docs", "/v1/responses"):
        assert _status(connection, path, elsewhere | known) == http.client.NOT_FOUND
    assert _status(connection, "/v1/runtime/acquire-task") == http.client.UNAUTHORIZED
    assert _status(connection, "/v1/fleet/pull-messages", elsewhere) == http.client.UNAUTHORIZED


def _nobody_else_submits(connection, folder):
    """Another user has no secret; the operator's own is of no use after her run; no process shows one."""
    app = folder / "app"
    with pytest.raises(ServiceError, match=r"refused start-run: A run was submitted already"):
        submit(connection, app, {"file": "", "greeting": ""})
    with pytest.raises(ServiceError, match=r"refused start-run: Only the operator of this server may do this"):
        submit(replace(connection, secret=""), app)
    with pytest.raises(ServiceError, match=r"refused start-run: Only the operator"):
        submit(replace(connection, secret="0" * 64), app)
    if can_be_another_user():
        asked = ("start-run", "list-runs", "stop-run", "register-node")
        assert statuses_for_another_user(connection.port, *asked) == [http.client.UNAUTHORIZED] * len(asked)
    arguments = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    with sqlite3.connect(folder / "link" / "superlink.db") as database:
        tokens = [row[0] for row in database.execute("SELECT token FROM task WHERE token IS NOT NULL")]
    assert tokens
    for secret in (connection.secret, *tokens):
        assert not any(str(secret).encode() in line for line in arguments)


def _readable_by_others(*folders):
    """The names of files and folders that other users may read, without regard to the folders that they are in."""
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return sorted(path.name for path in paths if path.stat().st_mode & 0o077)


def _status(connection, path, headers=None):
    trust = ssl.create_default_context(cafile=connection.root)
    asked = http.client.HTTPSConnection(connection.host, connection.port, timeout=SECONDS, context=trust)
    asked.request("POST", path, b"", {"Content-Type": "application/protobuf"} | (headers or {}))
    status = asked.getresponse().status
    asked.close()
    return status


def test_without_tls_on_the_loopback_interface_alone(tmp_path):
    with pytest.raises(InputError, match="needs TLS"):
        start_superlink(tmp_path, "0.0.0.0", free_port(), certificates=None, authentication=False)
    with pytest.raises(InputError, match="over TLS alone"):
        start_superlink(tmp_path, HOST, free_port(), certificates=None)
    with pytest.raises(InputError, match="needs TLS"):
        start_supernode(tmp_path, "fl.example.org", 8000, root_certificate=None, private_key=None)
    with pytest.raises(InputError, match="over TLS alone"):
        start_supernode(tmp_path, HOST, 8000, root_certificate=None, private_key=tmp_path / "key")


def test_what_cannot_be_started_is_a_sentence(tmp_path):
    import socket

    make_certificates(tmp_path / "server")
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"{HOST}:{port} cannot be listened at: Address already in use"):
            start_superlink(tmp_path, HOST, port, certificates=tmp_path / "server")
    with pytest.raises(InputError, match="not for fl"):
        start_superlink(tmp_path, "fl.example.org", port, certificates=tmp_path / "server")
    with pytest.raises(InputError, match="cannot be read"):
        start_superlink(tmp_path, HOST, port, certificates=tmp_path)


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


def test_settings_in_any_letters(tmp_path):
    import tomllib

    settings = {"text": "a \"b\" 'c' = \\ \n\t \x7f \x00 ü 🙂", "whole": -3, "real": 1e-300, "yes": True}
    assert read_run_config(write_app_folder(tmp_path, run_config=settings)) == settings
    components = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
    assert components["components"]["clientapp"] == "truthfl.federation.deployed.apps:client_app"
    for wrong, said in (({"a b": 1}, "no name of a setting"), ({"a": float("nan")}, "finite"), ({"a": None}, "text")):
        with pytest.raises(InputError, match=said):
            write_app_folder(tmp_path, run_config=wrong)
    with pytest.raises(InputError, match="no folder with a Flower app"):
        read_run_config(tmp_path / "nowhere")
