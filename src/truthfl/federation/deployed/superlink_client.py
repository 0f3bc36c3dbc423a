"""What an operator asks of a SuperLink: who is there, to admit a participant, to run an app, and how that goes.

In Flower's own words, over its HTTP interface, from the server's machine; an app is submitted by its `flwr run`.
Flower is loaded when it is needed. Looks at `processes`, `app_folder` and `node_keys`.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from truthfl.errors import InputError, ServiceError
from truthfl.federation.deployed.app_folder import Value, settings_of, toml_lines
from truthfl.federation.deployed.processes import program, run_to_end
from truthfl.federation.protocol.node_keys import pem_of, public_key_line
from truthfl.files import write_file
from truthfl.ledger.signing import read_public_line

NAME = "truthfl"
PROTOBUF = "application/protobuf"
SECONDS_TO_ANSWER = 60.0
SECONDS_BETWEEN_QUESTIONS = 1.0
OVER = ("completed", "failed", "stopped")


class Message(Protocol):
    """What Flower's questions and answers can do."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802

    def ParseFromString(self, serialized: bytes) -> int: ...  # noqa: N802


Answer = TypeVar("Answer", bound=Message)


@dataclass(frozen=True)
class Connection:
    """A SuperLink, as its own machine reaches it: without a root certificate, not encrypted. `home` is Flower's own."""

    host: str
    port: int
    root: Path | None
    home: Path

    @property
    def address(self) -> str:
        return address(self.host, self.port)


@dataclass(frozen=True)
class RegisteredNode:
    """Who may take part: by which key, under which name, and whether the SuperLink hears of them."""

    node_id: int
    public_key: str
    name: str
    online: bool


@dataclass(frozen=True)
class RunStatus:
    """`state` is pending, starting, running, completed, failed or stopped; `details` is why, where that is known."""

    state: str
    details: str = ""

    @property
    def over(self) -> bool:
        return self.state in OVER


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def answers(connection: Connection, seconds: float = 5.0) -> bool:
    """Whether a SuperLink is at home there, and, with TLS, is the one that we trust."""
    try:
        status, _ = _exchange(connection, "GET", "/health", None, seconds)
    except ssl.SSLCertVerificationError as error:
        where = f"the server at {connection.address}"
        raise InputError(f"{connection.root} does not vouch for {where}: {error.verify_message}.") from None
    except (OSError, http.client.HTTPException):
        return False
    return status == http.client.OK


def participants(connection: Connection) -> tuple[RegisteredNode, ...]:
    """All who may take part now."""
    from flwr.proto.control_pb2 import ListNodesRequest, ListNodesResponse

    nodes = _ask(connection, "list-nodes", ListNodesRequest(), ListNodesResponse).nodes_info
    return tuple(
        RegisteredNode(node.node_id, public_key_line(node.public_key), node.name, node.status == "online")
        for node in nodes
        if node.status != "unregistered"
    )


def register(connection: Connection, public_key_file: Path, name: str) -> int:
    """Let the holder of this key take part, or leave it so; the number that Flower knows her node by."""
    from flwr.proto.control_pb2 import RegisterNodeRequest, RegisterNodeResponse

    line = read_public_line(public_key_file)
    for known in participants(connection):
        if known.public_key == line:
            return known.node_id
    request = RegisterNodeRequest(public_key=pem_of(line), name=name)
    return _ask(connection, "register-node", request, RegisterNodeResponse).node_id


def submit(connection: Connection, app: Path, run_config: Mapping[str, Value] | None = None) -> int:
    """Start a run of the app in this folder; its number."""
    given = dict(run_config or {})
    unknown = sorted(given.keys() - settings_of(app).keys())
    if unknown:
        raise InputError(f"The app in {app} has no setting {unknown[0]!r}; app_folder must be told of it.")
    settings = connection.home / "run-config.toml"
    write_file(settings, toml_lines(given), private=True)
    _write_flower_config(connection)
    command = [program("flwr"), "run", str(app.resolve()), NAME, "--run-config", str(settings.resolve())]
    done = run_to_end([*command, "--format", "json"], home=connection.home, deadline=SECONDS_TO_ANSWER)
    try:
        return int(json.loads(done.stdout)["run-id"])
    except (ValueError, KeyError, TypeError):
        said = " ".join((done.stdout + done.stderr).split())
        raise ServiceError(f"The app in {app} was not started: {said[-500:] or 'Flower did not say why'}") from None


def run_status(connection: Connection, run_id: int) -> RunStatus:
    """How this run stands now."""
    from flwr.proto.control_pb2 import ListRunsRequest, ListRunsResponse

    runs = _ask(connection, "list-runs", ListRunsRequest(run_id=run_id), ListRunsResponse).run_dict
    status = runs[run_id].status
    return RunStatus(status.sub_status or status.status, status.details)


def wait_for_run(connection: Connection, run_id: int, deadline: float) -> RunStatus:
    """How this run ended; a sentence if it has not within `deadline` seconds."""
    end = time.monotonic() + deadline
    while not (status := run_status(connection, run_id)).over:
        if time.monotonic() > end:
            raise ServiceError(f"Run {run_id} is still {status.state} after {deadline:g} seconds.")
        time.sleep(SECONDS_BETWEEN_QUESTIONS)
    return status


def stop_run(connection: Connection, run_id: int) -> None:
    """End this run; nothing happens if it is over."""
    from flwr.proto.control_pb2 import StopRunRequest, StopRunResponse

    if not run_status(connection, run_id).over:
        _ask(connection, "stop-run", StopRunRequest(run_id=run_id), StopRunResponse)


def run_log(connection: Connection, run_id: int) -> str:
    """What the ServerApp of this run has said; Flower keeps that with the run and writes it to no file."""
    _write_flower_config(connection)
    command = [program("flwr"), "log", str(run_id), NAME, "--show"]
    done = run_to_end(command, home=connection.home, deadline=SECONDS_TO_ANSWER)
    return done.stdout + done.stderr


def _write_flower_config(connection: Connection) -> None:
    root = connection.root
    safety: dict[str, Value] = {"insecure": True} if root is None else {"root-certificates": str(root.resolve())}
    entry = toml_lines({"address": connection.address} | safety)
    write_file(connection.home / "config.toml", f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\n{entry}')


def _ask(connection: Connection, what: str, request: Message, kind: type[Answer]) -> Answer:
    try:
        status, body = _exchange(connection, "POST", f"/v1/control/{what}", request.SerializeToString())
    except (OSError, http.client.HTTPException) as error:
        raise ServiceError(f"The SuperLink at {connection.address} does not answer ({error}); is it up?") from None
    if status != http.client.OK:
        raise ServiceError(f"The SuperLink at {connection.address} refused {what}: {_reason(status, body)}.")
    answer = kind()
    answer.ParseFromString(body)
    return answer


def _exchange(
    connection: Connection, method: str, path: str, body: bytes | None, seconds: float = SECONDS_TO_ANSWER
) -> tuple[int, bytes]:
    if connection.root is None:
        asked = http.client.HTTPConnection(connection.host, connection.port, timeout=seconds)
    else:
        trust = ssl.create_default_context(cafile=connection.root)
        asked = http.client.HTTPSConnection(connection.host, connection.port, timeout=seconds, context=trust)
    try:
        asked.request(method, path, body, {"Content-Type": PROTOBUF, "Accept": PROTOBUF})
        answer = asked.getresponse()
        return answer.status, answer.read()
    finally:
        asked.close()


def _reason(status: int, body: bytes) -> str:
    try:
        said = json.loads(body)
        return " ".join(filter(None, (said.get("detail"), said.get("extra")))).rstrip(".")
    except (ValueError, AttributeError, TypeError):
        return f"HTTP status {status}"
