"""Flower's servers as processes: the operator's SuperLink and a participant's SuperNode, each with its executor.

With TLS and keys, or without both on the loopback interface alone. Whoever starts a server stops it: they are context
managers. Looks at `processes`, `certificates`, `superlink_client` and `app_folder`.
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
from truthfl.federation.deployed.processes import Child, free_port, program, start, start_again, stop, wait_until
from truthfl.federation.deployed.superlink_client import Connection, address, answers
from truthfl.files import write_file
from truthfl.ledger.signing import read_key

LOOPBACK = "127.0.0.1"
SECONDS_TO_START = 120.0
SECONDS_BETWEEN_TRIES = 5.0
SECONDS_BETWEEN_POLLS = 1.0
FLOWER_HOME, SECRET, NODE_CONFIG = "flower", "executor.secret", "node-config.toml"
CONNECTED, NOT_ADMITTED, EXECUTING = "SuperNode ID: ", "Failed to activate SuperNode", "Starting Flower SuperExec"


@dataclass(frozen=True)
class FlowerServer:
    """What was started, in the order in which it was; leaving its `with` ends it."""

    children: tuple[Child, ...]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        stop(self.children)


@dataclass(frozen=True)
class SuperLink(FlowerServer):
    """The operator's server, and how one talks to it."""

    connection: Connection


@dataclass(frozen=True)
class SuperNode(FlowerServer):
    """A participant's side, admitted."""

    node_id: int


def start_superlink(
    folder: Path,
    host: str = LOOPBACK,
    port: int = 8000,
    *,
    certificates: Path | None,
    authentication: bool = True,
    database: Path | None = None,
    deadline: float = SECONDS_TO_START,
) -> SuperLink:
    """Start a SuperLink and wait until it answers; `certificates` is the folder that truthfl keys server wrote."""
    home, secret = folder / FLOWER_HOME, _secret(folder)
    if certificates is None:
        _require_loopback(host, authentication)
        root, protection = None, ["--insecure"]
    else:
        files = read_certificates(certificates, host)
        root = files.root
        protection = _paths(ssl_ca_certfile=root, ssl_certfile=files.server, ssl_keyfile=files.server_key)
        protection += ["--enable-supernode-auth"] if authentication else []
    _require_free(host, port)
    kept = database or folder / "superlink.db"
    link = [
        sys.executable,
        "-m",
        "truthfl.federation.flower_patches.restricted_superlink",
        "--host",
        host,
        "--port",
        str(port),
        *protection,
    ]
    link += ["--isolation", "process", *_paths(superexec_auth_secret_file=secret, database=kept)]
    connection = Connection(host_to_reach(host), port, root, home)
    children = [start("superlink", link, folder, home=home)]
    try:
        wait_until(lambda: answers(connection), children, "The SuperLink did not start", deadline)
        children.append(_start_executor([program("flower-superexec")], folder, connection.address, root))
        _wait_for_words(children[1], EXECUTING, "The SuperLink's executor did not start", deadline)
    except BaseException:
        stop(children)
        raise
    return SuperLink(tuple(children), connection)


def mend(superlink: SuperLink, deadline: float = SECONDS_TO_START) -> SuperLink:
    """The same SuperLink, with what has ended of it started again; a run outlives half a minute without it."""
    children = tuple(start_again(child) if child.ended else child for child in superlink.children)
    try:
        wait_until(lambda: answers(superlink.connection), children, "The SuperLink did not start again", deadline)
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
    deadline: float = SECONDS_TO_START,
    patience: float = 0.0,
    poll: float = SECONDS_BETWEEN_POLLS,
) -> SuperNode:
    """Start a SuperNode and wait until the SuperLink at this host and port has admitted it.

    It runs the installed `clientapp` and no other code, and looks for messages every `poll` seconds. A key that its
    SuperLink thinks in use, as for a minute after a crash, is tried again for `patience` seconds.
    """
    if root_certificate is None or private_key is None:
        _require_loopback(host, root_certificate is not None or private_key is not None)
        protection = ["--insecure"]
    else:
        read_key(private_key)
        protection = _paths(root_certificates=read_root(root_certificate), auth_supernode_private_key=private_key)
    home, secret, runtime_port = folder / FLOWER_HOME, _secret(folder), free_port()
    settings = folder / NODE_CONFIG
    write_file(settings, toml_lines(node_config or {}), private=True)
    node = [sys.executable, "-m", "truthfl.federation.flower_patches.prompt_supernode", str(poll), *protection]
    node += ["--superlink", address(host, port)]
    node += ["--isolation", "process", "--host", LOOPBACK, "--port", str(runtime_port)]
    node += _paths(superexec_auth_secret_file=secret, node_config=settings)
    executor = [
        sys.executable,
        "-c",
        "from truthfl.federation.flower_patches.forking_executor import main; main()",
        clientapp,
    ]
    last_try = time.monotonic() + patience
    while True:
        children = [start("supernode", node, folder, home=home)]
        try:
            _wait_for_words(children[0], CONNECTED, f"No place at {host}:{port}", deadline)
            children.append(_start_executor(executor, folder, address(LOOPBACK, runtime_port), None))
            _wait_for_words(children[1], EXECUTING, "The SuperNode's executor did not start", deadline)
            return SuperNode(tuple(children), int(children[0].said().split(CONNECTED, 1)[1].split()[0]))
        except BaseException as error:
            stop(children)
            refused = isinstance(error, ServiceError) and NOT_ADMITTED in children[0].said()
            if not refused or time.monotonic() > last_try:
                raise
        time.sleep(SECONDS_BETWEEN_TRIES)


def _wait_for_words(child: Child, words: str, otherwise: str, deadline: float) -> None:
    wait_until(lambda: words in child.said(), [child], otherwise, deadline)


def _start_executor(command: list[str], folder: Path, runtime: str, root: Path | None) -> Child:
    protection = ["--insecure"] if root is None else _paths(root_certificates=root)
    secret = _paths(superexec_auth_secret_file=_secret(folder))
    options = ["--runtime-api-address", runtime, *protection, *secret]
    return start("executor", [*command, *options], folder, home=folder / FLOWER_HOME)


def _secret(folder: Path) -> Path:
    """What a server and its executor know each other by; other users of the machine cannot take its work."""
    path = folder / SECRET
    write_file(path, secrets.token_hex(32), private=True, keep_existing=True)
    return path


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
    return [part for name, path in options.items() for part in ("--" + name.replace("_", "-"), str(path.resolve()))]
