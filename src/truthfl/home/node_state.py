"""Files with the server's last stage for a participant's node, the state of the connection, and the last models.

The server states how many seconds are left, and this computer's clock keeps the deadline. So the clocks need not agree.
The file of the connection is written when it changes and every two seconds, so a reader knows whether the node runs.
A page that reads it touches another file. Only then does the node often ask whether the server answers.

A model is found by its digest, which is in the record of its round. A new model is written over the slot that does not
hold the last one. So a crash before its round is recorded loses nothing.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from truthfl.errors import InputError, ServiceError, TruthflError
from truthfl.files import PRIVATE_FILE_MODE, write_file
from truthfl.ledger.canonical import canonical_bytes, read_document

STAGES = "stages"
LABELING, LABELED, AUDITIONING, STOPPED = "labeling", "labeled", "auditioning", "stopped"
LONGEST_SECONDS = 10 * 366 * 86_400  # a longer wait is not accepted
SAME_SECONDS = 1.0  # deadlines that differ by less count as equal


@dataclass(frozen=True)
class ServerStage:
    """The server's stage, as one participant's node knows it; times are seconds since 1970 by the participant's clock.

    stage      "labeling": it waits for these labels; "labeled": for the others' labels; "auditioning": for the models
               trained alone; "stopped": it asks for nothing more
    until      when it stops waiting; None if not stated
    paused_at  when the operator paused the job; None if it is not paused
    """

    stage: str
    until: float | None = None
    paused_at: float | None = None

    def seconds_left(self, now: float) -> float | None:
        """How long the server still waits; while the job is paused, no time passes."""
        return None if self.until is None else max(self.until - (self.paused_at or now), 0.0)


def note_stage(home: Path, offer_hash: str, stage: str, seconds_left: object = None) -> None:
    """Write that the server is in this stage; `seconds_left` is the server's untrusted statement."""
    sound = type(seconds_left) in (int, float) and 0 <= seconds_left <= LONGEST_SECONDS  # type: ignore[operator]
    until = time.time() + float(seconds_left) if sound else None  # type: ignore[arg-type]
    found, known = ServerStage(stage, until), read_stage(home, offer_hash)
    if known is None or not _same(known, found):
        _write(home, offer_hash, found)


def note_pause(home: Path, offer_hash: str, *, paused: bool) -> None:
    """Write that the operator paused the job, or resumed it; a pause prolongs the server's wait."""
    known, now = read_stage(home, offer_hash), time.time()
    if known is None or paused == (known.paused_at is not None):
        return
    if paused:
        _write(home, offer_hash, replace(known, paused_at=now))
        return
    later = now - (known.paused_at or now)
    _write(home, offer_hash, replace(known, paused_at=None, until=None if known.until is None else known.until + later))


def read_stage(home: Path, offer_hash: str) -> ServerStage | None:
    """The last stage written under this offer; None if there is none or it cannot be read."""
    path = _path(home, offer_hash)
    try:
        return ServerStage(**read_document(path.read_bytes(), str(path)))
    except (FileNotFoundError, TypeError, InputError):
        return None
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None


def _same(one: ServerStage, other: ServerStage) -> bool:
    if (one.stage, one.paused_at) != (other.stage, other.paused_at):
        return False
    return math.isclose(one.until or 0.0, other.until or 0.0, rel_tol=0.0, abs_tol=SAME_SECONDS)


def _write(home: Path, offer_hash: str, stage: ServerStage) -> None:
    write_file(_path(home, offer_hash), canonical_bytes(asdict(stage)), sync=False)


def _path(home: Path, offer_hash: str) -> Path:
    """The file of this offer. The hash comes from the server and must not name another folder."""
    if not (offer_hash.isascii() and offer_hash.isalnum()):
        raise InputError("this is no hash of an offer.")
    return home / STAGES / f"{offer_hash}.json"


FOLDER, FILE_NAME, READ_FILE_NAME = "state", "connection.json", "connection_read"
SECONDS_BETWEEN_SIGNS = 2.0
STALE_SECONDS = 6.0
CONNECTED, LOST, ENDED = "connected", "lost", "ended"
BRIEF_SECONDS = 0.4  # a connection that is closed and opened again is not lost
READ_SECONDS = 5.0  # how long a page counts as viewed after it reads the file


class NodeState(NamedTuple):
    """The content of the file; times are seconds since 1970.

    connected  whether the server was reached when it was last tried
    since      when that began
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
        """Note whether the server was reached, now or this number of seconds ago."""
        if connected == self._connected or self._ended.is_set():
            return
        self._connected, self._since = connected, time.time() - seconds_ago
        self._write()

    @property
    def is_read(self) -> bool:
        """Whether somebody views a page that shows the connection."""
        try:
            return time.time() - (self.path.parent / READ_FILE_NAME).stat().st_mtime < READ_SECONDS
        except OSError:
            return False

    def _write_signs(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_SIGNS):
            self._write()

    def _write(self) -> None:
        """Write the file; a failure to write, as on a full disk, does not end a job."""
        with self._lock:
            state = NodeState(self._connected, self._since, time.time())
            try:
                write_file(self.path, json.dumps(state._asdict()), private=True, sync=False)
            except TruthflError:
                return


def read_connection(home: Path) -> NodeState | None:
    """The node's last status in this folder, None if no node runs. This tells the node that somebody reads it."""
    try:
        state = NodeState(**json.loads((home / FOLDER / FILE_NAME).read_bytes()))
        (home / FOLDER / READ_FILE_NAME).touch(mode=0o600)
        return state
    except (OSError, ValueError, TypeError):
        return None


MODELS_IN_MEMORY = 2  # of all offers of this process

_in_memory: tuple[tuple[str, bytes], ...] = ()  # digests and models, the newest first


class ModelSlots:
    """The file of one offer, for models of one size. Its user must have locked the offer's rounds."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._handle: int | None = None
        self._found: tuple[str, int] | None = None  # digest and slot of the model that was last found or written

    def model(self, digest: str, size: int) -> bytes | None:
        """The model of this digest and number of bytes; None if neither slot has it."""
        kept = _remembered(digest)
        if kept is None:
            slot = self._slot_of(digest, size)
            kept = None if slot is None else self._read(slot, size)
            if kept is not None:
                _remember(digest, kept)
        return kept

    def keep(self, digest: str, model: memoryview, last: str | None) -> None:
        """Write a model; the model with the digest `last` stays in the other slot."""
        slot = None if last is None else self._slot_of(last, model.nbytes)
        if digest == last and slot is not None:
            return
        free = 0 if slot is None else 1 - slot
        try:
            written = os.pwrite(self._opened(), model, free * model.nbytes)
        except OSError as error:
            raise ServiceError(f"{self._path} cannot be written: {error.strerror}.") from None
        if written != model.nbytes:
            raise ServiceError(f"{self._path} cannot be written: there is no room for all of it.")
        self._found = digest, free
        if _remembered(digest) is None:
            _remember(digest, model.tobytes())

    def close(self) -> None:
        """Close the file and forget which slot has which model; it is opened again when it is needed."""
        if self._handle is not None:
            os.close(self._handle)
        self._handle = self._found = None

    def _slot_of(self, digest: str, size: int) -> int | None:
        if self._found is None or self._found[0] != digest:
            slots = (slot for slot in (0, 1) if sha256(self._read(slot, size)).hexdigest() == digest)
            slot = next(slots, None)
            self._found = None if slot is None else (digest, slot)
        return None if self._found is None else self._found[1]

    def _read(self, slot: int, size: int) -> bytes:
        try:
            return os.pread(self._opened(), size, slot * size)
        except OSError as error:
            raise ServiceError(f"{self._path} cannot be read: {error.strerror}.") from None

    def _opened(self) -> int:
        if self._handle is None:
            self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE_MODE)
        return self._handle


def _remembered(digest: str) -> bytes | None:
    return next((model for one, model in _in_memory if one == digest), None)


def _remember(digest: str, model: bytes) -> None:
    global _in_memory  # replaced as a whole, so that threads see a whole one
    _in_memory = ((digest, model), *_in_memory)[:MODELS_IN_MEMORY]
