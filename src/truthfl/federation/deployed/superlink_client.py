"""A client of a SuperLink's control API: list and register nodes; submit, observe and stop runs.

Requests are sent over HTTP, without a secret: the SuperLink is the operator's to protect.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truthfl.errors import InputError, ServiceError
from truthfl.federation.deployed.app_folder import Value, read_run_config
from truthfl.federation.protocol.node_keys import pem_of, public_key_line
from truthfl.ledger.signing import read_public_line

FLOWER_HOME = "flower"  # in the operator's folder
PROTOBUF, PROTOBUF_STREAM = "application/protobuf", "application/flower-protobuf-stream"
STREAM_HEADER_BYTES = 4
REQUEST_TIMEOUT = 60.0  # seconds
POLL_SECONDS = 1.0
FINAL_STATES = ("completed", "failed", "stopped")


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
    nodes = _call(connection, "list-nodes").nodes_info
    return tuple(
        RegisteredNode(node.node_id, public_key_line(node.public_key), node.name, node.status == "online")
        for node in nodes
        if node.status != "unregistered"
    )


def register(connection: Connection, public_key_file: Path, name: str) -> int:
    """Register a node with this public key unless it is registered; return its id."""
    line = read_public_line(public_key_file)
    for node in registered_nodes(connection):
        if node.public_key == line:
            return node.node_id
    return int(_call(connection, "register-node", public_key=pem_of(line), name=name).node_id)


def submit(connection: Connection, app: Path, run_config: Mapping[str, Value] | None = None) -> int:
    """Start a run of the app in this folder; return the run's id."""
    from truthfl.flower_patches.app_bundle import app_bundle, app_settings

    config = dict(run_config or {})
    unknown = sorted(config.keys() - read_run_config(app).keys())
    if unknown:
        raise InputError(f"The app in {app} has no setting {unknown[0]!r}; write_app_folder defines them.")
    response = _call(connection, "start-run", fab=app_bundle(app), override_config=app_settings(config))
    if not response.HasField("run_id"):
        raise ServiceError(f"The app in {app} was not started: {response.note or 'Flower did not say why'}.")
    return int(response.run_id)


def run_status(connection: Connection, run_id: int) -> RunStatus:
    """Return the state of this run."""
    status = _call(connection, "list-runs", run_id=run_id).run_dict[run_id].status
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
    if not run_status(connection, run_id).is_over:
        _call(connection, "stop-run", run_id=run_id)


def run_log(connection: Connection, run_id: int) -> str:
    """Return the output of a run that is over, which Flower keeps in its database and not in a file."""
    from truthfl.flower_patches.control_messages import control_request, control_response

    method = "stream-logs"
    body = _post(connection, method, control_request(method, run_id=run_id, after_timestamp=0.0), PROTOBUF_STREAM)
    return "".join(control_response(method, part).log_output for part in _stream_parts(body))


def _call(connection: Connection, method: str, **fields: Any) -> Any:
    """Send a request with these fields; return the response with its own."""
    from truthfl.flower_patches.control_messages import control_request, control_response

    return control_response(method, _post(connection, method, control_request(method, **fields), PROTOBUF))


def _post(connection: Connection, method: str, body: bytes, accept: str) -> bytes:
    """Send a request of the control API; return the response's body."""
    try:
        status, response = _http_request(connection, "POST", f"/v1/control/{method}", body, accept=accept)
    except (OSError, http.client.HTTPException) as error:
        raise ServiceError(f"The SuperLink at {connection.address} does not answer ({error}); is it up?") from None
    if status != http.client.OK:
        reason = _error_reason(status, response)
        raise ServiceError(f"The SuperLink at {connection.address} refused {method}: {reason}.")
    return response


def _stream_parts(body: bytes) -> Iterator[bytes]:
    """The parts of a stream's body; four bytes before each say how long it is."""
    while body:
        end = STREAM_HEADER_BYTES + int.from_bytes(body[:STREAM_HEADER_BYTES], "big")
        yield body[STREAM_HEADER_BYTES:end]
        body = body[end:]


def _http_request(
    connection: Connection,
    method: str,
    path: str,
    body: bytes | None,
    timeout: float = REQUEST_TIMEOUT,
    accept: str = PROTOBUF,
) -> tuple[int, bytes]:
    if connection.root is None:
        http_connection = http.client.HTTPConnection(connection.host, connection.port, timeout=timeout)
    else:
        tls = ssl.create_default_context(cafile=connection.root)
        http_connection = http.client.HTTPSConnection(connection.host, connection.port, timeout=timeout, context=tls)
    headers = {"Content-Type": PROTOBUF, "Accept": accept}
    try:
        http_connection.request(method, path, body, headers)
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
