"""Flower's commands as child processes: environment, logs, waiting and stopping.

A child and its descendants are one process group, which `stop` ends as a whole; `end_with_parent` ends it if this
process is killed. Files that it makes are for this user alone. Imports `files`.
"""

from __future__ import annotations

import os
import re
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

from truthfl.errors import ServiceError
from truthfl.files import create_private_file

END_WITH_PARENT = Path(__file__).with_name("end_with_parent.py")
LINES_SHOWN = 12
SECONDS_TO_TERMINATE, SECONDS_TO_KILL = 10.0, 2.0
POLL_SECONDS = 0.1
PRIVATE_UMASK = 0o077  # files of a child, its database among them, are for this user alone
_ANSI_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

# Linux signals a child when the thread that started it ends, so all are started by one thread that never ends.
_starting_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="truthfl-children")


@dataclass(frozen=True)
class Child:
    """A command running in its own process group.

    home       the value of FLWR_HOME
    log        the file with its output
    log_start  the position in the file at which its output starts
    """

    name: str
    command: tuple[str, ...]
    home: Path
    process: subprocess.Popen[bytes]
    log: Path
    log_start: int

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def output(self) -> str:
        """Return its output so far, without colours."""
        with self.log.open("rb") as log:
            log.seek(self.log_start)
            return _ANSI_COLOURS.sub("", log.read().decode(errors="replace"))

    def last_lines(self) -> str:
        return "\n".join([line for line in self.output().splitlines() if line.strip()][-LINES_SHOWN:])


def start(name: str, command: Sequence[str], folder: Path, *, home: Path) -> Child:
    """Start a command with its output appended to NAME.log in this folder; `home` is the value of FLWR_HOME."""
    log = folder / f"{name}.log"
    command_with_guard = [sys.executable, "-I", "-S", str(END_WITH_PARENT), str(os.getpid()), *command]
    with _open_log(log) as output:
        log_start = output.tell()
        process = _starting_thread.submit(
            subprocess.Popen,
            command_with_guard,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment(home),
            start_new_session=True,
            umask=PRIVATE_UMASK,
        ).result()
    return Child(name, tuple(command), home, process, log, log_start)


def _open_log(log: Path) -> BinaryIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        create_private_file(log)
        return log.open("ab")
    except OSError as error:
        raise ServiceError(f"{log} cannot be written: {error.strerror}.") from None


def restart(child: Child) -> Child:
    """Stop a child and start its command again, with the same log file."""
    stop([child])
    return start(child.name, child.command, child.log.parent, home=child.home)


def environment(home: Path) -> dict[str, str]:
    """This process's environment with FLWR_HOME; Flower's telemetry, update check and package installation are off."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")}
    no_proxy = ",".join(
        filter(None, (os.environ.get("NO_PROXY", os.environ.get("no_proxy")), "localhost,127.0.0.1,::1"))
    )
    return inherited | {
        "PATH": _search_path(),
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "FLWR_HOME": str(home.resolve()),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
    }


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port at which no process listens now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def wait_until(ready: Callable[[], bool], children: Iterable[Child], failure: str, timeout: float) -> None:
    """Wait until `ready()`; raise ServiceError if a child ends first, or after `timeout` seconds.

    failure  the start of the error message; the last lines of a child's log follow
    """
    watched = tuple(children)
    deadline = time.monotonic() + timeout
    while not ready():
        for child in watched:
            if child.ended:
                raise ServiceError(f"{failure}: {child.name} ended. {_log_tail(child)}")
        if time.monotonic() > deadline:
            raise ServiceError(f"{failure}: not within {timeout:g} seconds. {_log_tail(watched[0])}")
        time.sleep(POLL_SECONDS)


def stop(children: Iterable[Child], grace: float = SECONDS_TO_TERMINATE) -> None:
    """End these children and their descendants, the last child first: SIGTERM, then SIGKILL after `grace` seconds."""
    for child in reversed(tuple(children)):
        for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, SECONDS_TO_KILL)):
            deadline = time.monotonic() + seconds
            running = _signal_group(child, number)
            while running and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS / 4)
                running = is_running(child)
        child.process.wait()


def is_running(child: Child) -> bool:
    """Whether the child or one of its descendants runs; zombie processes do not count."""
    if child.ended:  # its descendants may have become children of this process
        with suppress(ChildProcessError):
            os.waitpid(-child.process.pid, os.WNOHANG)
    if not _signal_group(child, 0):
        return False
    states = [state for group, state in _processes() if group == child.process.pid]
    return not states or any(state != "Z" for state in states)


def _processes() -> Iterator[tuple[int, str]]:
    """The group and the state of each process, on systems with /proc."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended in the meantime
            state, _, group = path.read_text(errors="replace").rsplit(")", 1)[1].split()[:3]
            yield int(group), state


def _signal_group(child: Child, number: int) -> bool:
    """Send a signal to the child's process group; return whether there was such a group."""
    try:
        os.killpg(child.process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _search_path() -> str:
    script_folders = [sysconfig.get_path("scripts"), str(Path(sys.executable).parent)]
    return os.pathsep.join([*script_folders, os.environ.get("PATH", os.defpath)])


def _log_tail(child: Child) -> str:
    lines = child.last_lines()
    return f"The last lines of {child.log}:\n{lines}" if lines else f"{child.log} is empty."
