"""The soak's PostgreSQL: the killer kills it, or one of its processes, and it is started again.

Only the killer, which is in the soak's own process, stops it. That process can thus read while `is_up` without waiting
for itself.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

from scripts.soaking.private_postgresql import PrivateServer
from scripts.soaking.processes import Failed, die_with_parent

LONGEST_AWAY = 60.0
PAUSE = 0.3


class Database:
    """A private server that comes back after a kill."""

    def __init__(self, server: PrivateServer) -> None:
        self.server = server
        self.address = server.address
        self.is_up = True
        self._start_at = self._away_since = self._tried = 0.0

    @property
    def pid(self) -> int:
        assert self.server.process is not None
        return self.server.process.pid

    def children(self) -> list[int]:
        """The server's processes, without the first one."""
        found = []
        with suppress(OSError):
            for path in Path(f"/proc/{self.pid}/task").glob("*/children"):
                found += [int(word) for word in path.read_text().split()]
        return found

    def kill(self, again_at: float) -> None:
        """Kill the first process; the others notice and exit."""
        assert self.server.process is not None
        self.server.process.kill()
        self.server.process.wait()
        self.is_up = False
        self._start_at, self._away_since = again_at, time.monotonic()

    def kill_child(self, choice: int) -> str | None:
        """Kill one of its processes, so that it ends all connections and recovers; return the process's kind."""
        children = self.children()
        if not children:
            return None
        pid = children[choice % len(children)]
        with suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_text().strip("\0 ")
            os.kill(pid, signal.SIGKILL)
            return re.sub(r"\s+", " ", title)
        return None

    def look(self) -> None:
        """Start it again if it is time; retry while old processes are still there."""
        now = time.monotonic()
        if self.is_up and self.server.process is not None and self.server.process.poll() is not None:
            # it ends by itself if one of its processes is killed while it recovers from the kill of another one
            self.is_up, self._start_at, self._away_since = False, now, now
        if self.is_up or now < max(self._start_at, self._tried + PAUSE):
            return
        if now > self._away_since + LONGEST_AWAY:
            raise Failed(f"PostgreSQL does not come back: {self.server.log.read_text()[-2000:]}")
        self._tried = now
        if self.server.process is None or self.server.process.poll() is not None:
            self.server.launch(preexec_fn=die_with_parent)
            return
        self.is_up = self.server.answers()

    def kilobytes(self) -> float:
        """The average memory of its processes, without the buffers, whose size is fixed."""
        each = []
        for pid in (self.pid, *self.children()):
            with suppress(OSError):
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
                found = re.search(r"^Pss_Anon:\s+(\d+) kB", text, re.MULTILINE)
                each += [] if found is None else [int(found.group(1))]
        return sum(each) / max(len(each), 1)
