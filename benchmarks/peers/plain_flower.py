"""Rounds of plain Flower: Flower's own commands start SuperLink and SuperNodes, over TLS."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from truthfl.certificates import certificates_in, make_certificates

HOST, APP = "127.0.0.1", "benchmarks.peers.softmax_flower_app"
ROOT = Path(__file__).parent.parent.parent
SECONDS = 1200.0
PROJECT = """
[project]
name = "plain-flower"
version = "1.0.0"
description = "Plain Flower"
license = {{ text = "Apache-2.0" }}
dependencies = []
[tool.flwr.app]
publisher = "truthfl"
[tool.flwr.app.components]
serverapp = "{app}:server_app"
clientapp = "{app}:client_app"
[tool.flwr.app.config]
nodes = {nodes}
rounds = {rounds}
file = {file}
"""
CONNECTION = """
[superlink.here]
address = "{address}"
root-certificates = {root}
"""


def free_port() -> int:
    """A port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def flower_round_seconds(folder: Path, nodes: int, rounds: int) -> list[float]:
    """The seconds of each round with this many SuperNodes."""
    folder.mkdir(parents=True)
    make_certificates(folder / "keys")
    files, port, times = certificates_in(folder / "keys"), free_port(), folder / "times.json"
    with ExitStack() as stack:
        tls = ("--ssl-ca-certfile", files.root, "--ssl-certfile", files.server, "--ssl-keyfile", files.server_key)
        stack.enter_context(
            started(folder, "superlink", program("flower-superlink"), "--host", HOST, "--port", port, *tls)
        )
        wait_for_port(port)
        for number in range(nodes):
            words = ("--superlink", f"{HOST}:{port}", "--root-certificates", files.root, "--port", free_port())
            stack.enter_context(started(folder, f"node{number}", program("flower-supernode"), "--host", HOST, *words))
        project = PROJECT.format(app=APP, nodes=nodes, rounds=rounds, file=json.dumps(str(times)))
        connection = CONNECTION.format(address=f"{HOST}:{port}", root=json.dumps(str(files.root)))
        for file, text in (
            (folder / "app" / "pyproject.toml", project),
            (folder / "flower" / "config.toml", connection),
        ):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        run = stack.enter_context(started(folder, "run", program("flwr"), "run", folder / "app", "here", "--stream"))
        run.wait(SECONDS)
        if not times.exists():
            raise SystemExit(f"plain Flower's run failed: {(folder / 'run.log').read_text(encoding='utf-8')[-2000:]}")
    return json.loads(times.read_text(encoding="utf-8"))


def wait_for_port(port: int) -> None:
    """Wait until a process listens there."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((HOST, port), 1.0):
            return
        time.sleep(0.2)
    raise SystemExit("plain Flower's SuperLink did not start.")


def program(name: str) -> Path:
    """One of Flower's commands in this environment."""
    return Path(sys.executable).with_name(name)


@contextmanager
def started(folder: Path, name: str, *words: object):
    """A command with settings for Flower, and its child processes, until the context ends; its log is NAME.log."""
    settings = {
        "FLWR_HOME": str(folder / "flower"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
    }
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [*map(str, words)],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | settings,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, number)
                process.wait(10)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
