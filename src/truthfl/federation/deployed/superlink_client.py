"""A client of a SuperLink's control API: list and register nodes; submit, observe and stop runs.

Requests are sent over HTTP from the server's machine; apps are submitted by the command `flwr run`. Imports
`processes`, `app_folder`, the protocol's `node_keys`, `files`, `ledger.signing` and, when needed, Flower.
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
from truthfl.federation.deployed.app_folder import Value, read_run_config, toml_lines
from truthfl.federation.deployed.processes import program, run_to_end
from truthfl.federation.protocol.node_keys import pem_of, public_key_line
from truthfl.files import write_file
from truthfl.ledger.signing import read_public_line

SUPERLINK_NAME = "truthfl"  # in Flower's config.toml
PROTOBUF = "application/protobuf"
REQUEST_TIMEOUT = 60.0  # seconds
POLL_SECONDS = 1.0
FINAL_STATES = ("completed", "failed", "stopped")


class ProtobufMessage(Protocol):
    """The methods of Flower's requests and responses."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802

    def ParseFromString(self, serialized: bytes) -> int: ...  # noqa: N802


Response = TypeVar("Response", bound=ProtobufMessage)


@dataclass(frozen=True)
class Connection:
    """A SuperLink's address as seen from its own machine.

    root  the authority's certificate; None connects without TLS
    home  the value of FLWR_HOME
    """

    host: str
    port: int
    root: Path | None
    home: Path

    @property
    def address(self) -> str:
        return address(self.host, self.port)


@dataclass(frozen=True)
class RegisteredNode:
    """A node that may take part: its id, its public key (one OpenSSH line), its name, whether it is connected."""

    node_id: int
    public_key: str
    name: str
    online: bool


@dataclass(frozen=True)
class RunStatus:
    """The state of a run: pending, starting, running, completed, failed or stopped; `details` may have the reason."""

    state: str
    details: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in FINAL_STATES


def address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_reachable(connection: Connection, timeout: float = 5.0) -> bool:
    """Whether a SuperLink responds there; raise InputError if its TLS certificate is not trusted."""
    try:
        status, _ = _http_request(connection, "GET", "/health", None, timeout)
    except ssl.SSLCertVerificationError as error:
        server = f"the server at {connection.address}"
        raise InputError(f"{connection.root} does not vouch for {server}: {error.verify_message}.") from None
    except (OSError, http.client.HTTPException):
        return False
    return status == http.client.OK


def registered_nodes(connection: Connection) -> tuple[RegisteredNode, ...]:
    """Return all nodes that may take part now."""
    from flwr.proto.control_pb2 import ListNodesRequest, ListNodesResponse

    nodes = _call(connection, "list-nodes", ListNodesRequest(), ListNodesResponse).nodes_info
    return tuple(
        RegisteredNode(node.node_id, public_key_line(node.public_key), node.name, node.status == "online")
        for node in nodes
        if node.status != "unregistered"
    )


def register(connection: Connection, public_key_file: Path, name: str) -> int:
    """Register a node with this public key unless it is registered; return its id."""
    from flwr.proto.control_pb2 import RegisterNodeRequest, RegisterNodeResponse

    line = read_public_line(public_key_file)
    for node in registered_nodes(connection):
        if node.public_key == line:
            return node.node_id
    request = RegisterNodeRequest(public_key=pem_of(line), name=name)
    return _call(connection, "register-node", request, RegisterNodeResponse).node_id


def submit(connection: Connection, app: Path, run_config: Mapping[str, Value] | None = None) -> int:
    """Start a run of the app in this folder; return the run's id."""
    config = dict(run_config or {})
    unknown = sorted(config.keys() - read_run_config(app).keys())
    if unknown:
        raise InputError(f"The app in {app} has no setting {unknown[0]!r}; write_app_folder defines them.")
    config_file = connection.home / "run-config.toml"
    write_file(config_file, toml_lines(config), private=True)
    _write_flower_config(connection)
    command = [program("flwr"), "run", str(app.resolve()), SUPERLINK_NAME, "--run-config", str(config_file.resolve())]
    result = run_to_end([*command, "--format", "json"], home=connection.home, timeout=REQUEST_TIMEOUT)
    try:
        return int(json.loads(result.stdout)["run-id"])
    except (ValueError, KeyError, TypeError):
        output = " ".join((result.stdout + result.stderr).split())
        raise ServiceError(f"The app in {app} was not started: {output[-500:] or 'Flower did not say why'}") from None


def run_status(connection: Connection, run_id: int) -> RunStatus:
    """Return the state of this run."""
    from flwr.proto.control_pb2 import ListRunsRequest, ListRunsResponse

    runs = _call(connection, "list-runs", ListRunsRequest(run_id=run_id), ListRunsResponse).run_dict
    status = runs[run_id].status
    return RunStatus(status.sub_status or status.status, status.details)


def wait_for_run(connection: Connection, run_id: int, timeout: float) -> RunStatus:
    """Wait until a run is over; return its state. Raise ServiceError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (status := run_status(connection, run_id)).is_over:
        if time.monotonic() > deadline:
            raise ServiceError(f"Run {run_id} is still {status.state} after {timeout:g} seconds.")
        time.sleep(POLL_SECONDS)
    return status


def stop_run(connection: Connection, run_id: int) -> None:
    """Stop a run unless it is over."""
    from flwr.proto.control_pb2 import StopRunRequest, StopRunResponse

    if not run_status(connection, run_id).is_over:
        _call(connection, "stop-run", StopRunRequest(run_id=run_id), StopRunResponse)


def run_log(connection: Connection, run_id: int) -> str:
    """Return the output of a run's ServerApp, which Flower keeps in its database and not in a file."""
    _write_flower_config(connection)
    command = [program("flwr"), "log", str(run_id), SUPERLINK_NAME, "--show"]
    result = run_to_end(command, home=connection.home, timeout=REQUEST_TIMEOUT)
    return result.stdout + result.stderr


def _write_flower_config(connection: Connection) -> None:
    root = connection.root
    security: dict[str, Value] = {"insecure": True} if root is None else {"root-certificates": str(root.resolve())}
    entry = toml_lines({"address": connection.address} | security)
    text = f'[superlink]\ndefault = "{SUPERLINK_NAME}"\n\n[superlink.{SUPERLINK_NAME}]\n{entry}'
    write_file(connection.home / "config.toml", text)


def _call(connection: Connection, method: str, request: ProtobufMessage, kind: type[Response]) -> Response:
    try:
        status, body = _http_request(connection, "POST", f"/v1/control/{method}", request.SerializeToString())
    except (OSError, http.client.HTTPException) as error:
        raise ServiceError(f"The SuperLink at {connection.address} does not answer ({error}); is it up?") from None
    if status != http.client.OK:
        raise ServiceError(f"The SuperLink at {connection.address} refused {method}: {_error_reason(status, body)}.")
    response = kind()
    response.ParseFromString(body)
    return response


def _http_request(
    connection: Connection, method: str, path: str, body: bytes | None, timeout: float = REQUEST_TIMEOUT
) -> tuple[int, bytes]:
    if connection.root is None:
        http_connection = http.client.HTTPConnection(connection.host, connection.port, timeout=timeout)
    else:
        tls = ssl.create_default_context(cafile=connection.root)
        http_connection = http.client.HTTPSConnection(connection.host, connection.port, timeout=timeout, context=tls)
    try:
        http_connection.request(method, path, body, {"Content-Type": PROTOBUF, "Accept": PROTOBUF})
        response = http_connection.getresponse()
        return response.status, response.read()
    finally:
        http_connection.close()


def _error_reason(status: int, body: bytes) -> str:
    try:
        error = json.loads(body)
        return " ".join(filter(None, (error.get("detail"), error.get("extra")))).rstrip(".")
    except (ValueError, AttributeError, TypeError):
        return f"HTTP status {status}"
