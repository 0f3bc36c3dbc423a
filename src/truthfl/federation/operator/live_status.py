"""What a running server knows and the ledger does not: stage and deadline, connected clients, labels so far.

The server writes it to a file in the operator's folder. `truthfl status`, the operator's page and the metrics read it.
Only the owner can read the file because the ledger's address in it may hold a password. Simulations write none.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import Message

from truthfl.errors import InputError
from truthfl.files import write_file

if TYPE_CHECKING:
    from flwr.serverapp import Grid


@dataclass(frozen=True)
class ServerUse:
    """Seconds, processor seconds of all threads, and bytes to and from nodes without TLS and HTTP overhead."""

    seconds: float
    cpu_seconds: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0

    def since(self, earlier: ServerUse) -> ServerUse:
        """The resources used since then."""
        return ServerUse(
            self.seconds - earlier.seconds,
            self.cpu_seconds - earlier.cpu_seconds,
            self.sent_bytes - earlier.sent_bytes,
            self.received_bytes - earlier.received_bytes,
        )


def server_use(grid: Grid) -> ServerUse:
    """The resources used until now; Flower's built-in grids do not count bytes."""
    sent, received = getattr(grid, "bytes_so_far", (0, 0))
    return ServerUse(time.monotonic(), time.process_time(), sent, received)


SERVING_FILE = "serving.json"


@dataclass(frozen=True)
class ServingInfo:
    """How a server was started.

    job           its name in the ledger
    ledger        a file, or the address of a database
    key           the file of the operator's private key
    host, port    where participants connect
    root          the file of the certificate that they need; "" without TLS
    participants  the folder with their public keys; "" if nobody is known
    operator      the public key that belongs to the private one, as invitations tell it
    """

    job: str
    ledger: str
    key: str
    host: str
    port: int
    root: str = ""
    participants: str = ""
    operator: str = ""

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def write_serving(folder: Path, info: ServingInfo) -> None:
    """Write the file, or replace that of an earlier start."""
    write_file(folder / SERVING_FILE, json.dumps(asdict(info)), private=True)


def read_serving(folder: Path) -> ServingInfo | None:
    """The options of the last server in this folder; None if there was none."""
    path = folder / SERVING_FILE
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        info = ServingInfo(**document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        raise InputError(f"{path} cannot be read; truthfl serve writes it again.") from None
    if any(type(getattr(info, field.name)) is not (int if field.name == "port" else str) for field in fields(info)):
        raise InputError(f"{path} cannot be read; truthfl serve writes it again.")
    return info


def note_connected(live: LiveWriter, connected: Collection[str]) -> None:
    """Note that these clients, and no others, are connected."""
    if live.folder is None:
        return

    def edit(status: LiveStatus) -> None:
        for name in {*status.clients, *connected}:
            status.clients.setdefault(name, LiveClient()).connected = name in connected

    live.change(edit)


def note_replies(
    live: LiveWriter, name_of: Mapping[int, str], asked_at: float, replies: Sequence[tuple[int, Message]]
) -> None:
    """Note that these replies came to a question of this time, in seconds since 1970.

    A reply gives the time when it was made. The time is clipped to the interval from the question to now.
    """
    if live.folder is None:
        return
    now = time.time()
    seen = datetime.now(UTC).isoformat(timespec="milliseconds")

    def edit(status: LiveStatus) -> None:
        for node, reply in replies:
            if node in name_of and not reply.has_error():
                client = status.clients.setdefault(name_of[node], LiveClient())
                made = min(max(float(reply.metadata.created_at), asked_at), now)
                client.last_seen, client.reply_seconds = seen, round(made - asked_at, 3)

    live.change(edit)


def note_labels(live: LiveWriter, name: str, labeled: object, asked: int) -> None:
    """Note a client's stated number of labels; ignore it unless it is a whole number up to those asked for."""
    if live.folder is None or type(labeled) is not int or not 0 <= labeled <= asked:
        return

    def edit(status: LiveStatus) -> None:
        status.clients.setdefault(name, LiveClient()).labeled = labeled

    live.change(edit)


FILE_NAME = "live.json"
SECONDS_BETWEEN_WRITES = 0.2
STALE_SECONDS = 10.0  # a running server writes at least every SECONDS_BETWEEN_SIGNS
SECONDS_BETWEEN_SIGNS = 3.0
MOST_ROUND_TIMES, MOST_REFUSED_CONNECTIONS = 200, 20
MOST_STAGE_CHANGES = 100  # not yet read

# Stages, in their order.
ENROLLING, PLANNING, APPROVING, OFFERING = "enrolling", "planning", "approving", "offering"
LABELING, AUDITIONING, DECIDING, TRAINING = "labeling", "auditioning", "deciding", "training"
TESTING, OVER = "testing", "over"


@dataclass
class LiveClient:
    """One participant, as the running server sees them.

    last_seen      time of the last message, ISO 8601 in UTC; None if there was none since the server started
    labeled        how many labels of the offer exist; None if the client has not stated it
    reply_seconds  how long the last reply took
    """

    connected: bool = False
    last_seen: str | None = None
    labeled: int | None = None
    reply_seconds: float | None = None


@dataclass(frozen=True)
class RefusedConnection:
    """A connection that was not admitted: when, from which address, and why, in a sentence."""

    at: str
    address: str
    reason: str


@dataclass(frozen=True)
class StageChange:
    """A job entered a stage, was paused or goes on; times as in `LiveStatus`."""

    at: str
    stage: str
    paused: bool
    deadline: str | None


@dataclass(frozen=True)
class RoundWaits:
    """A round waits for people: their names, the round, since when, and until when at most."""

    names: tuple[str, ...]
    round: int
    at: str
    until: str


@dataclass
class LiveStatus:
    """The content of the file. Times are ISO 8601 in UTC.

    pid            the server's process
    at             when this was written
    address        HOST:PORT that participants use
    stage          one of the stages above
    stage_since    when it began
    deadline       when the server stops waiting in this stage; None if it does not wait
    paused         whether the operator paused the job
    round_seconds  how long the last rounds took, the latest last
    rounds_timed, seconds_in_rounds  how many rounds there were since the server started, and how long all of them took
    cpu_seconds_in_rounds            the server's processor time in them
    sent_bytes_in_rounds, received_bytes_in_rounds  the length of its messages in them, and of the replies
    clients        by name: all clients of the job
    waits          for whom the round waits, once it takes longer than usual; None for nobody
    refused_connections  the last ones
    """

    job: str
    pid: int = field(default_factory=os.getpid)
    at: str = ""
    address: str = ""
    stage: str = ENROLLING
    stage_since: str = ""
    deadline: str | None = None
    paused: bool = False
    round_seconds: list[float] = field(default_factory=list)
    rounds_timed: int = 0
    seconds_in_rounds: float = 0.0
    cpu_seconds_in_rounds: float = 0.0
    sent_bytes_in_rounds: int = 0
    received_bytes_in_rounds: int = 0
    clients: dict[str, LiveClient] = field(default_factory=dict)
    waits: RoundWaits | None = None
    refused_connections: list[RefusedConnection] = field(default_factory=list)

    @property
    def is_current(self) -> bool:
        """Whether the server that wrote it still runs, on this machine."""
        try:
            age = (datetime.now(UTC) - datetime.fromisoformat(self.at)).total_seconds()
        except (TypeError, ValueError):
            return False
        return age < STALE_SECONDS and process_exists(self.pid)


def process_exists(pid: int) -> bool:
    """Whether a process with this number runs on this machine, under whatever account."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError, TypeError):
        return False
    return True


def now() -> str:
    """The time, ISO 8601 in UTC, in milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def read_live_status(folder: Path) -> LiveStatus | None:
    """The status in this operator's folder; None if there is none that can be read."""
    try:
        document = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        document["clients"] = {name: LiveClient(**client) for name, client in document["clients"].items()}
        document["refused_connections"] = [RefusedConnection(**one) for one in document["refused_connections"]]
        if document["waits"] is not None:
            waits = document["waits"]
            document["waits"] = RoundWaits(**waits | {"names": tuple(waits["names"])})
        return LiveStatus(**document)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


class LiveWriter:
    """Holds the status of a running server and writes changes to the file in a separate thread.

    A context manager; any thread may call `change`. Without a folder nothing is written.
    """

    def __init__(self, folder: Path | None, job: str, names: tuple[str, ...] = (), address: str = "") -> None:
        self.folder = folder
        self.status = LiveStatus(job, address=address, stage_since=now())
        self.status.clients = {name: LiveClient() for name in names}
        self._stages: deque[StageChange | RoundWaits] = deque(maxlen=MOST_STAGE_CHANGES)
        self._last_stage: tuple[str, bool] | None = None
        self._lock, self._changed, self._ended = threading.Lock(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_changes, name="truthfl live status", daemon=True)

    def __enter__(self) -> LiveWriter:
        if self.folder is not None:
            self._write()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._changed.set()
        if self.folder is not None:
            self._thread.join()
            self._write()

    def change(self, edit: Callable[[LiveStatus], None]) -> None:
        """Change the status; `edit` must be quick."""
        with self._lock:
            edit(self.status)
        self._changed.set()

    def begin(self, stage: str, deadline: str | None = None) -> None:
        """Enter a stage, or change the deadline of the present one."""

        def edit(status: LiveStatus) -> None:
            if status.stage != stage:
                status.stage, status.stage_since = stage, now()
            status.deadline = deadline
            self._note_stage()

        self.change(edit)

    def set_paused(self, paused: bool) -> None:
        """Note whether the job is paused."""

        def edit(status: LiveStatus) -> None:
            status.paused = paused
            self._note_stage()

        self.change(edit)

    def set_waits(self, names: Collection[str], round_: int = 0, until: str = "") -> None:
        """Note for whom the round waits, and until when; nobody if it does not wait."""

        def edit(status: LiveStatus) -> None:
            known = status.waits
            if not names:
                status.waits = None
                return
            new = RoundWaits(tuple(sorted(names)), round_, now(), until)
            if known is not None and known.round == round_:
                new = replace(new, at=known.at)
            status.waits = new
            if known is None or (known.names, known.round) != (new.names, new.round):
                self._stages.append(new)

        self.change(edit)

    def take_stage_changes(self) -> list[StageChange | RoundWaits]:
        """The changes of stage, the pauses, and the waits of rounds since the last call."""
        with self._lock:
            taken = list(self._stages)
            self._stages.clear()
        return taken

    def note_round(self, use: ServerUse) -> None:
        """Note the resources that a round took."""

        def edit(status: LiveStatus) -> None:
            _append(status.round_seconds, round(use.seconds, 6), MOST_ROUND_TIMES)
            status.rounds_timed += 1
            status.seconds_in_rounds += use.seconds
            status.cpu_seconds_in_rounds += use.cpu_seconds
            status.sent_bytes_in_rounds += use.sent_bytes
            status.received_bytes_in_rounds += use.received_bytes

        self.change(edit)

    def note_refused_connection(self, address: str, reason: str) -> None:
        """Note a connection that was not admitted."""
        refused = RefusedConnection(now(), address, reason)
        self.change(lambda status: _append(status.refused_connections, refused, MOST_REFUSED_CONNECTIONS))

    def _note_stage(self) -> None:
        found = (self.status.stage, self.status.paused)
        if found != self._last_stage:
            self._last_stage = found
            self._stages.append(StageChange(now(), *found, self.status.deadline))

    def _write_changes(self) -> None:
        while not self._ended.is_set():
            self._changed.wait(SECONDS_BETWEEN_SIGNS)
            self._changed.clear()
            self._write()
            time.sleep(SECONDS_BETWEEN_WRITES)

    def _write(self) -> None:
        assert self.folder is not None
        with self._lock:
            self.status.at = now()
            document = asdict(self.status)
        write_file(self.folder / FILE_NAME, json.dumps(document), private=True, sync=False)


def _append(values: list[Any], value: Any, most: int) -> None:
    values.append(value)
    del values[:-most]
