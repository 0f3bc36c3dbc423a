"""The processes of a soak, each in its own session; a killed process is started again by the same command.

A process that the killer ended is started again after a moment. So is one that left because the ledger's database did
not answer (exit code 3). No process outlives the soak: Linux kills them when the soak dies. At its end, no process that
they started may remain; a variable in their environment identifies these, since the system reuses process numbers.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

PROGRAM = [sys.executable, "-m", "truthfl"]
SERVICE_FAILED = 3  # truthfl's exit code where network, disk or a process failed
DATABASE_AWAY = re.compile(r"postgresql://\S* cannot be used as a ledger: .*|postgresql://\S* is too busy .*")
SET_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
MOST_RESTARTS = 60
IMPORT_SECONDS = 0.7
SECONDS_TO_LEAVE = 15.0
MARK = "TRUTHFL_SOAK"  # in the environment of all processes of a soak
_prctl = ctypes.CDLL(None, use_errno=True).prctl


class Failed(Exception):  # noqa: N818 - the soak's finding
    """Something did not hold."""


def die_with_parent() -> None:
    """In a new process: make Linux kill it when its parent is gone, for any reason."""
    _prctl(SET_DEATH_SIGNAL, signal.SIGKILL)


class Process:
    """One command, which may be started several times.

    name      unique in the soak; its output is in NAME.log
    role      the killer's name for it: server, participant, run, page or command
    words     of truthfl, or a function that returns them for each start
    spared    whether the killer leaves it alone, so that its memory can be measured
    code      the exit code when it ended by itself; None until then
    mark      the soak's mark in its environment
    """

    def __init__(
        self,
        name: str,
        role: str,
        words: list[object] | Callable[[], list[object]],
        folder: Path,
        spared: bool = False,
        *,
        mark: str,
    ) -> None:
        self.name, self.role, self.folder, self.spared, self.mark = name, role, folder, spared, mark
        self.words = words if callable(words) else lambda: words
        self.log = folder / f"{name}.log"
        self.code: int | None = None
        self.kills = self.starts = 0
        self.killed_in: Counter[str] = Counter()  # by stage of its job
        self.most_kilobytes = 0
        self.start_at: float | None = None  # when it is to be started again
        self.process: subprocess.Popen[bytes] | None = None
        self._said_before = 0
        self.start()

    @property
    def pid(self) -> int | None:
        """Its process id, if it runs."""
        return self.process.pid if self.process is not None and self.process.poll() is None else None

    def has_worked(self) -> bool:
        """Whether it runs and has used enough processor time to be past its imports, in most cases.

        Otherwise half of all kills would hit a process that has not begun its work.
        """
        try:
            used = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        except OSError:
            return False
        return sum(map(int, used)) / os.sysconf("SC_CLK_TCK") > IMPORT_SECONDS

    def start(self) -> None:
        self.starts += 1
        self.start_at = None
        self._said_before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, *map(str, self.words())],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, MARK: self.mark},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def kill(self, again_at: float) -> None:
        """Kill it without warning; it is started again at this time."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        if self.process.returncode == -signal.SIGKILL:  # else it had ended by itself before
            self.kills += 1
            self.start_at = again_at

    def look(self) -> None:
        """Start it again if it is time; note that it has ended by itself."""
        if self.start_at is not None:
            if time.monotonic() >= self.start_at:
                self.start()
            return
        if self.code is not None or self.process is None or self.process.poll() is None:
            return
        code = self.process.returncode
        if code == SERVICE_FAILED and DATABASE_AWAY.search(self.said_last()) and self.starts < MOST_RESTARTS:
            self.start_at = time.monotonic() + 1.0
            return
        self.code = code

    def said(self) -> str:
        """All its output."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def said_last(self) -> str:
        """Its output since its last start."""
        return self.log.read_bytes()[self._said_before :].decode(errors="replace") if self.log.exists() else ""

    def end(self) -> None:
        """Ask it to leave, as Ctrl+C does; it is not started again."""
        self.start_at = None
        if self.code is None:
            self.code = -signal.SIGINT
        if self.pid is not None:
            assert self.process is not None
            self.process.send_signal(signal.SIGINT)


class Processes:
    """All processes of a soak."""

    def __init__(self) -> None:
        self.all: list[Process] = []
        self.mark = uuid4().hex

    def start(self, *arguments: object, **more: object) -> Process:
        """Start a process, with the arguments of `Process` but the mark."""
        made = Process(*arguments, mark=self.mark, **more)  # type: ignore[arg-type]
        self.all.append(made)
        return made

    def look(self) -> None:
        for one in self.all:
            one.look()

    def forget(self, done: list[Process]) -> None:
        """Forget these processes."""
        for one in done:
            self.all.remove(one)

    def end(self) -> None:
        """End all of them, by force if necessary."""
        for one in self.all:
            one.end()
        latest = time.monotonic() + SECONDS_TO_LEAVE
        for one in self.all:
            if one.process is not None:
                try:
                    one.process.wait(max(0.0, latest - time.monotonic()))
                except subprocess.TimeoutExpired:
                    one.process.kill()
                    one.process.wait()
        self.forget(list(self.all))

    def left_behind(self) -> list[int]:
        """Kill processes that still run, and processes that they started; return the ids."""
        found = list(running(self.mark))
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return found


def running(mark: str) -> Iterator[int]:
    """The ids of all processes that run with this mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):  # empty for a process that has ended
                yield int(path.parent.name)
