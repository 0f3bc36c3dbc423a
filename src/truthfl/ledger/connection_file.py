"""Whether a participant's node reaches the operator's server, in a file of her folder that her page reads.

The file is written when that changes, and every two seconds, so that one who reads it knows whether the node still
runs. A page that reads it says so by the time of another file: only then the node asks the server every moment whether
it answers.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import NamedTuple

from truthfl.errors import TruthflError
from truthfl.files import write_file

FOLDER, FILE_NAME, READ_FILE_NAME = "state", "connection.json", "connection_read"
SECONDS_BETWEEN_SIGNS = 2.0
STALE_SECONDS = 6.0
CONNECTED, LOST, ENDED = "connected", "lost", "ended"
BRIEF_SECONDS = 0.4  # a connection that is closed and opened again is not lost
READ_SECONDS = 5.0  # after a reading, a page is taken to be looked at for so long


class NodeState(NamedTuple):
    """The content of the file; times are seconds since 1970.

    connected  whether the server was reached when it was last tried
    since      since when
    at         when this was written
    """

    connected: bool
    since: float
    at: float

    def in_words(self, now: float) -> str:
        """ "connected", "lost", or "ended" if the node does not run any more."""
        if now - self.at > STALE_SECONDS:
            return ENDED
        return CONNECTED if self.connected or now - self.since < BRIEF_SECONDS else LOST


class ConnectionFile:
    """Writes the file while its context is open, and removes it then. Any thread may call `note`."""

    def __init__(self, home: Path) -> None:
        self.path = home / FOLDER / FILE_NAME
        self._connected, self._since = False, time.time()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._write_signs, name="truthfl connection", daemon=True)

    def __enter__(self) -> ConnectionFile:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.path.unlink(missing_ok=True)
        (self.path.parent / READ_FILE_NAME).unlink(missing_ok=True)

    def note(self, connected: bool, seconds_ago: float = 0.0) -> None:
        """Note whether the server was reached, now or so many seconds ago."""
        if connected == self._connected or self._ended.is_set():
            return
        self._connected, self._since = connected, time.time() - seconds_ago
        self._write()

    @property
    def is_read(self) -> bool:
        """Whether a page is looked at that shows the connection."""
        try:
            return time.time() - (self.path.parent / READ_FILE_NAME).stat().st_mtime < READ_SECONDS
        except OSError:
            return False

    def _write_signs(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_SIGNS):
            self._write()

    def _write(self) -> None:
        """Write the file; that it cannot be written, as on a full disk, ends no job."""
        with self._lock:
            state = NodeState(self._connected, self._since, time.time())
            try:
                write_file(self.path, json.dumps(state._asdict()), private=True, sync=False)
            except TruthflError:
                return


def read_connection(home: Path) -> NodeState | None:
    """What the node in this folder wrote last, which learns that it is read; None if none runs or ran to its end."""
    try:
        state = NodeState(**json.loads((home / FOLDER / FILE_NAME).read_bytes()))
        (home / FOLDER / READ_FILE_NAME).touch(mode=0o600)
        return state
    except (OSError, ValueError, TypeError):
        return None
