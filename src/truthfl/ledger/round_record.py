"""What a participant's node received and sent in each round of an offer: one line of JSON per report, in her folder.

The file is locked while a report is made, so that of two messages at once the second sees what the first left. A
process leaves it open for the next round, and reads it again only if it has changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from truthfl.errors import InputError, ServiceError
from truthfl.files import PRIVATE_FILE_MODE, lock_handle, make_folder, unlock_handle, wait_for_disk, wait_for_name
from truthfl.ledger.model_slots import ModelSlots

ROUNDS = "rounds"
RECENT_BYTES = 10_000  # read first for the last line, which has less than 400 unless many are missing
MOST_ASIDE = 100  # files left open

_encoder = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class RoundRecord:
    """One report. The last record of a round counts.

    round      counted from 0
    received   the digest of the common model, as in the ledger's entries
    sent       the digest of the report as it left this computer
    unchanged  in how many rounds until now the model was the same as before
    changed    the number of earlier rounds that changed the model, as the server says
    missing    of a masked report: who is missing by the last list that was signed, by index
    opened     whether this participant's shares of the others' own masks were told for that list
    lists      who was missing in the sums that were opened from the same model in the rounds directly before
    """

    round: int
    received: str
    sent: str
    unchanged: int = 0
    changed: int = 0
    missing: tuple[int, ...] = ()
    opened: bool = False
    lists: tuple[tuple[int, ...], ...] = ()


class RoundFile:
    """The open file of one offer's rounds, to be used while it is locked.

    models  the file of the last model, beside it
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.models = ModelSlots(path.removesuffix(".jsonl") + ".models")
        is_new = not os.path.exists(path)
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, PRIVATE_FILE_MODE)
        if is_new:
            wait_for_name(Path(path))
        self._read: tuple[int, ...] | None = None  # the file's state when it was read, or written from here
        self._last: RoundRecord | None = None
        self._earlier: dict[int, RoundRecord] = {}  # of a job whose rounds are repeated; they change no more

    @property
    def last(self) -> RoundRecord | None:
        """The last report; None if there is none."""
        return self._last

    def record_of(self, round_: int) -> RoundRecord | None:
        """The record of this round; None if it was not answered."""
        if self._last is None or round_ >= self._last.round:
            return self._last if self._last is not None and self._last.round == round_ else None
        if round_ not in self._earlier:
            lines = os.pread(self.handle, os.fstat(self.handle).st_size, 0).split(b"\n")[:-1]
            self._earlier = {record.round: record for record in (_record(line, self.path) for line in lines)}
        return self._earlier.get(round_)

    def is_current(self) -> bool:
        """Read what others have written since it was last locked; False if another file has taken its place."""
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        state = _state(there)
        if state != self._read:
            own = os.fstat(self.handle)
            if (own.st_dev, own.st_ino) != (there.st_dev, there.st_ino):
                return False
            self._read_last(own.st_size)
        return True

    def append(self, record: RoundRecord) -> None:
        line = _encoder.encode(vars(record)).encode() + b"\n"
        self._earlier = {}
        read, self._read = self._read, None
        try:
            written = os.write(self.handle, line)
        except OSError as error:
            raise ServiceError(f"{self.path} cannot be written: {error.strerror}.") from None
        if written != len(line):
            raise ServiceError(f"{self.path} cannot be written: there is no room for a line.")
        wait_for_disk(self.handle)
        self._last, self._read = record, (*read[:-1], read[-1] + len(line)) if read else None

    def close(self) -> None:
        self.models.close()
        os.close(self.handle)

    def _read_last(self, size: int) -> None:
        self.models.close()
        line, whole = _last_line(self.handle, size)
        if whole < size:
            os.ftruncate(self.handle, whole)
        self._last = None if line is None else _record(line, self.path)
        self._read = _state(os.fstat(self.handle))


@contextmanager
def open_rounds(home: Path, offer_hash: str) -> Iterator[RoundFile]:
    """Open and lock the rounds of this offer, in the participant's folder `home`; make the file if there is none."""
    rounds = _locked(_path(home, offer_hash))
    try:
        yield rounds
    finally:
        unlock_handle(rounds.handle)
        _put_aside(rounds)


def _locked(path: str) -> RoundFile:
    """The file, for nobody else: one that was put aside if it is still the one at this path, or newly opened."""
    while True:
        with _aside_lock:
            rounds = _aside.pop(path, None)
        try:
            rounds = rounds or _opened(path)
            lock_handle(rounds.handle)
            if rounds.is_current():
                return rounds
            rounds.close()
        except BaseException as error:
            if rounds is not None:
                rounds.close()
            if isinstance(error, OSError):
                raise ServiceError(f"{path} cannot be written: {error.strerror}.") from None
            raise


def _opened(path: str) -> RoundFile:
    try:
        return RoundFile(path)
    except FileNotFoundError:
        make_folder(Path(path).parent)
        return RoundFile(path)


def _put_aside(rounds: RoundFile) -> None:
    """Leave a file open for the next round, unless that of another thread is; close those not used for longest."""
    with _aside_lock:
        unused = [rounds] if _aside.setdefault(rounds.path, rounds) is not rounds else []
        while len(_aside) > MOST_ASIDE:
            unused.append(_aside.pop(next(iter(_aside))))
    for other in unused:
        other.close()


def _forget_aside() -> None:
    """In a new process: the files are the parent's, and a lock of one process would be that of both."""
    global _aside_lock
    _aside_lock = Lock()
    for rounds in _aside.values():
        rounds.close()
    _aside.clear()


_aside: dict[str, RoundFile] = {}  # open files by path, not locked, that no thread uses
_aside_lock = Lock()
os.register_at_fork(after_in_child=_forget_aside)


def rounds_of(home: Path, offer_hash: str) -> list[RoundRecord]:
    """All reports that were sent under this offer, by round."""
    path = rounds_file(home, offer_hash)
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
    return list({record.round: record for record in (_record(line, path) for line in lines)}.values())


def last_round(home: Path, offer_hash: str) -> RoundRecord | None:
    """The last report that was sent under this offer, without a lock; None if there is none."""
    path = rounds_file(home, offer_hash)
    try:
        with path.open("rb") as file:
            line, _ = _last_line(file.fileno(), os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
    return None if line is None else _record(line, path)


def rounds_file(home: Path, offer_hash: str) -> Path:
    """The file of this offer; the hash comes from the server and must not name another folder."""
    return Path(_path(home, offer_hash))


def _path(home: Path, offer_hash: str) -> str:
    if not (offer_hash.isascii() and offer_hash.isalnum()):
        raise InputError("this is no hash of an offer.")
    return f"{home}/{ROUNDS}/{offer_hash}.jsonl"  # made in every round, where a Path takes longer than the reading


def _last_line(handle: int, size: int) -> tuple[bytes | None, int]:
    """The last whole line, and where it ends; None and 0 if there is none.

    The last write may have been cut off by a crash, before anything was sent.
    """
    length = RECENT_BYTES
    while True:
        start = max(0, size - length)
        recent = os.pread(handle, size - start, start)
        end = recent.rfind(b"\n")
        before = recent.rfind(b"\n", 0, max(end, 0))
        if end >= 0 and (before >= 0 or not start):
            return recent[before + 1 : end], start + end + 1
        if not start:
            return None, 0
        length *= 2


def _state(file: os.stat_result) -> tuple[int, ...]:
    """What tells whether a file has been written or replaced."""
    return file.st_dev, file.st_ino, file.st_size


def _record(line: bytes, path: Path | str) -> RoundRecord:
    try:
        fields = json.loads(line)
        lists = tuple(map(tuple, fields["lists"]))
        return RoundRecord(**fields | {"missing": tuple(fields["missing"]), "lists": lists})
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{path} has a line that is no record of a round; it should not be edited.") from None
