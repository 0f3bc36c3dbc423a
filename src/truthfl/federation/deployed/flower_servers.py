"""Start Flower's servers as processes: the operator's SuperLink and a participant's SuperNode, each with its executor.

They use TLS and keys, or neither on the loopback interface only. Imports `processes`, `certificates`,
`superlink_client`, `app_folder`, `files` and `ledger.signing`.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from truthfl.errors import InputError, ServiceError
from truthfl.federation.deployed.app_folder import CLIENT_APP, Value, toml_lines
from truthfl.federation.deployed.certificates import host_to_reach, read_certificates, read_root
from truthfl.federation.deployed.processes import Child, free_port, restart, start, stop, wait_until
from truthfl.federation.deployed.superlink_client import Connection, address, is_reachable
from truthfl.files import make_private_folder, write_file
from truthfl.ledger.signing import read_key

LOOPBACK = "127.0.0.1"
START_TIMEOUT = 120.0  # seconds
SECONDS_BETWEEN_TRIES = 5.0
POLL_SECONDS = 1.0
FLOWER_HOME, NODE_CONFIG = "flower", "node-config.toml"
EXECUTOR_SECRET, CONTROL_SECRET = "executor.secret", "control.secret"
PATCHES = "truthfl.federation.flower_patches"
PYTHON = (sys.executable, "-P")  # without the current folder among those that modules are imported from
# Texts in the logs of Flower.
CONNECTED, NOT_ADMITTED, EXECUTING = "SuperNode ID: ", "Failed to activate SuperNode", "Starting Flower SuperExec"


@dataclass(frozen=True)
class FlowerServer:
    """Child processes in the order of their start; a context manager that stops them."""

    children: tuple[Child, ...]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        stop(self.children)


@dataclass(frozen=True)
class SuperLink(FlowerServer):
    """The operator's server and the connection to it."""

    connection: Connection


@dataclass(frozen=True)
class SuperNode(FlowerServer):
    """A participant's node, admitted by the SuperLink."""

    node_id: int


def start_superlink(
    folder: Path,
    host: str = LOOPBACK,
    port: int = 8000,
    *,
    certificates: Path | None,
    authentication: bool = True,
    database: Path | None = None,
    timeout: float = START_TIMEOUT,
) -> SuperLink:
    """Start a SuperLink and wait until it is reachable; `certificates` is a folder written by truthfl keys server."""
    make_private_folder(folder)
    home, secret = folder / FLOWER_HOME, _executor_secret(folder)
    if certificates is None:
        _require_loopback(host, authentication)
        root, protection = None, ["--insecure"]
    else:
        files = read_certificates(certificates, host)
        root = files.root
        protection = _paths(ssl_ca_certfile=root, ssl_certfile=files.server, ssl_keyfile=files.server_key)
        protection += ["--enable-supernode-auth"] if authentication else []
    _require_free(host, port)
    database_file = database or folder / "superlink.db"
    control_secret = _new_control_secret(folder)
    superlink_command = [
        *PYTHON,
        "-m",
        f"{PATCHES}.restricted_superlink",
        str((folder / CONTROL_SECRET).resolve()),
        "--host",
        host,
        "--port",
        str(port),
        *protection,
    ]
    superlink_command += ["--isolation", "process", *_paths(superexec_auth_secret_file=secret, database=database_file)]
    connection = Connection(host_to_reach(host), port, root, home, control_secret)
    executor_command = [*PYTHON, "-c", f"from {PATCHES}.serverapp_executor import main; main()"]
    children = [start("superlink", superlink_command, folder, home=home)]
    try:
        wait_until(lambda: is_reachable(connection), children, "The SuperLink did not start", timeout)
        children.append(_start_executor(executor_command, folder, connection.address, root))
        _wait_for_output(children[1], EXECUTING, "The SuperLink's executor did not start", timeout)
    except BaseException:
        stop(children)
        raise
    return SuperLink(tuple(children), connection)


def restart_ended(superlink: SuperLink, timeout: float = START_TIMEOUT) -> SuperLink:
    """Restart those processes of a SuperLink that ended; a run survives half a minute without them."""
    children = tuple(restart(child) if child.ended else child for child in superlink.children)
    try:
        wait_until(lambda: is_reachable(superlink.connection), children, "The SuperLink did not start again", timeout)
    except BaseException:
        stop(children)
        raise
    return SuperLink(children, superlink.connection)


def start_supernode(
    folder: Path,
    host: str,
    port: int,
    *,
    root_certificate: Path | None,
    private_key: Path | None,
    node_config: Mapping[str, Value] | None = None,
    clientapp: str = CLIENT_APP,
    timeout: float = START_TIMEOUT,
    retry_seconds: float = 0.0,
    poll_seconds: float = POLL_SECONDS,
) -> SuperNode:
    """Start a SuperNode and wait until the SuperLink at this host and port has admitted it.

    clientapp      MODULE:NAME of the installed app that it runs; it runs no other code
    timeout        seconds to wait for each process
    retry_seconds  how long to try again if it is not admitted; after a crash the key counts as in use for a minute
    poll_seconds   the interval of polling for messages
    """
    if root_certificate is None or private_key is None:
        _require_loopback(host, root_certificate is not None or private_key is not None)
        protection = ["--insecure"]
    else:
        read_key(private_key)
        protection = _paths(root_certificates=read_root(root_certificate), auth_supernode_private_key=private_key)
    make_private_folder(folder)
    home, secret, runtime_port = folder / FLOWER_HOME, _executor_secret(folder), free_port()
    settings = folder / NODE_CONFIG
    write_file(settings, toml_lines(node_config or {}), private=True)
    supernode_command = [*PYTHON, "-m", f"{PATCHES}.prompt_supernode", str(poll_seconds), *protection]
    supernode_command += ["--superlink", address(host, port)]
    supernode_command += ["--isolation", "process", "--host", LOOPBACK, "--port", str(runtime_port)]
    supernode_command += _paths(superexec_auth_secret_file=secret, node_config=settings)
    executor_command = [*PYTHON, "-c", f"from {PATCHES}.forking_executor import main; main()", clientapp]
    retry_until = time.monotonic() + retry_seconds
    while True:
        children = [start("supernode", supernode_command, folder, home=home)]
        try:
            _wait_for_output(children[0], CONNECTED, f"The SuperLink at {host}:{port} did not admit this node", timeout)
            children.append(_start_executor(executor_command, folder, address(LOOPBACK, runtime_port), None))
            _wait_for_output(children[1], EXECUTING, "The SuperNode's executor did not start", timeout)
            return SuperNode(tuple(children), int(children[0].output().split(CONNECTED, 1)[1].split()[0]))
        except BaseException as error:
            stop(children)
            not_admitted = isinstance(error, ServiceError) and NOT_ADMITTED in children[0].output()
            if not not_admitted or time.monotonic() > retry_until:
                raise
        time.sleep(SECONDS_BETWEEN_TRIES)


def _wait_for_output(child: Child, text: str, failure: str, timeout: float) -> None:
    wait_until(lambda: text in child.output(), [child], failure, timeout)


def _start_executor(command: list[str], folder: Path, runtime_address: str, root: Path | None) -> Child:
    protection = ["--insecure"] if root is None else _paths(root_certificates=root)
    secret = _paths(superexec_auth_secret_file=_executor_secret(folder))
    options = ["--runtime-api-address", runtime_address, *protection, *secret]
    return start("executor", [*command, *options], folder, home=folder / FLOWER_HOME)


def _executor_secret(folder: Path) -> Path:
    """Return the file with the secret shared by a server and its executor, readable by this user only."""
    path = folder / EXECUTOR_SECRET
    write_file(path, secrets.token_hex(32), private=True, keep_existing=True)
    return path


def _new_control_secret(folder: Path) -> str:
    """Make a new secret for the control API of one SuperLink, readable by this user only."""
    secret = secrets.token_hex(32)
    write_file(folder / CONTROL_SECRET, secret, private=True)
    return secret


def _require_loopback(host: str, authentication: bool) -> None:
    if authentication:
        raise InputError("Participants are known by their keys over TLS alone; give certificates and keys, or neither.")
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local:
        raise InputError(f"{host} can be reached by others, so it needs TLS; truthfl keys server makes certificates.")


def _require_free(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ServiceError(f"{host}:{port} cannot be listened at: {error.strerror}; name another port.") from None


def _paths(**options: Path) -> list[str]:
    """Command-line options with paths: `a_b=path` becomes `--a-b path`."""
    return [part for name, path in options.items() for part in ("--" + name.replace("_", "-"), str(path.resolve()))]
