"""Flower's commands as child processes: their environment, their logs, how one waits for them and how they end.

A child and all that it starts are one process group, which `stop` ends as a whole; if we are killed, `end_with_parent`
ends it. Looks at `errors` alone.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from truthfl.errors import InputError, ServiceError

END_WITH_PARENT = Path(__file__).with_name("end_with_parent.py")
LINES_SHOWN = 12
SECONDS_TO_END, SECONDS_TO_BE_BURIED = 10.0, 2.0
SECONDS_BETWEEN_LOOKS = 0.1
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

# Linux ends a child with the thread that started it, so all are started by one thread that stays.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="truthfl-children")


@dataclass(frozen=True)
class Child:
    """A command that runs in a process group of its own and writes to a log, from the byte `begins` on."""

    name: str
    command: tuple[str, ...]
    home: Path
    process: subprocess.Popen[bytes]
    log: Path
    begins: int

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def said(self) -> str:
        """What it has written so far."""
        with self.log.open("rb") as log:
            log.seek(self.begins)
            return _COLOURS.sub("", log.read().decode(errors="replace"))

    def last_lines(self) -> str:
        return "\n".join([line for line in self.said().splitlines() if line.strip()][-LINES_SHOWN:])


def start(name: str, command: Sequence[str], folder: Path, *, home: Path) -> Child:
    """Start a command of Flower's in this folder; `name`.log there has what it says."""
    log = folder / f"{name}.log"
    guarded = [sys.executable, "-I", "-S", str(END_WITH_PARENT), str(os.getpid()), *command]
    with _appended(log) as output:
        begins = output.tell()
        process = _starter.submit(
            subprocess.Popen,
            guarded,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(home),
            start_new_session=True,
        ).result()
    return Child(name, tuple(command), home, process, log, begins)


def _appended(log: Path) -> BinaryIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("ab")
    except OSError as error:
        raise ServiceError(f"{log} cannot be written: {error.strerror}.") from None


def start_again(child: Child) -> Child:
    """The same command once more; the log goes on."""
    stop([child])
    return start(child.name, child.command, child.log.parent, home=child.home)


def run_to_end(command: list[str], *, home: Path, deadline: float) -> subprocess.CompletedProcess[str]:
    """Run a short command of Flower's and take what it prints."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment(home),
            timeout=deadline,
            check=False,
        )
    except subprocess.TimeoutExpired:
        asked = " ".join([Path(command[0]).name, *command[1:2]])
        raise ServiceError(f"{asked} had no answer after {deadline:g} seconds; is the server up?") from None


def environment(home: Path) -> dict[str, str]:
    """Ours, with a home of Flower's own, and without its telemetry, update check and installing of packages."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    not_proxied = ",".join(
        filter(None, (os.environ.get("NO_PROXY", os.environ.get("no_proxy")), "localhost,127.0.0.1,::1"))
    )
    return kept | {
        "PATH": _search_path(),
        "NO_PROXY": not_proxied,
        "no_proxy": not_proxied,
        "FLWR_HOME": str(home.resolve()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
    }


def program(name: str) -> str:
    """Where this command of Flower's is: beside our own, or on the path."""
    found = shutil.which(name, path=_search_path())
    if found is None:
        raise InputError(f"The command {name} of Flower was not found; pip install truthfl brings it along.")
    return found


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens at now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def wait_until(ready: Callable[[], bool], children: Iterable[Child], what: str, deadline: float) -> None:
    """Wait for `ready`; if a child ends first, or after `deadline` seconds, a sentence with its last lines."""
    watched = tuple(children)
    end = time.monotonic() + deadline
    while not ready():
        for child in watched:
            if child.ended:
                raise ServiceError(f"{what}: {child.name} ended. {_shown(child)}")
        if time.monotonic() > end:
            raise ServiceError(f"{what}: not within {deadline:g} seconds. {_shown(watched[0])}")
        time.sleep(SECONDS_BETWEEN_LOOKS)


def stop(children: Iterable[Child], grace: float = SECONDS_TO_END) -> None:
    """End these children, the last one first, each with all that it started: asked to, and made to if it stays."""
    for child in reversed(tuple(children)):
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, SECONDS_TO_BE_BURIED)):
            end = time.monotonic() + seconds
            running = _signal_group(child, number)
            while running and time.monotonic() < end:
                time.sleep(SECONDS_BETWEEN_LOOKS / 4)
                running = remains(child)
        child.process.wait()


def remains(child: Child) -> bool:
    """Whether the child, or anything that it started, still runs; the dead whom nobody has buried yet do not count."""
    if child.ended:  # what it started may have become ours to bury
        with suppress(ChildProcessError):
            os.waitpid(-child.process.pid, os.WNOHANG)
    if not _signal_group(child, 0):
        return False
    states = [state for group, state in _processes() if group == child.process.pid]
    return not states or any(state != "Z" for state in states)


def _processes() -> Iterator[tuple[int, str]]:
    """The group and the state of each process, where the system tells."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has gone in the meantime
            state, _, group = path.read_text(errors="replace").rsplit(")", 1)[1].split()[:3]
            yield int(group), state


def _signal_group(child: Child, number: int) -> bool:
    """Whether there was anybody to receive it."""
    try:
        os.killpg(child.process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _search_path() -> str:
    beside = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent)]
    return os.pathsep.join([*beside, os.environ.get("PATH", os.defpath)])


def _shown(child: Child) -> str:
    lines = child.last_lines()
    return f"The last lines of {child.log}:\n{lines}" if lines else f"{child.log} is empty."
