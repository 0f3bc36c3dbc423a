"""What a participant's node received and sent in each round of an offer: one line of JSON per report, in her folder.

The file is locked while a report is made, so that of two messages at once the second sees what the first left. Imports
`errors` and `files`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from truthfl.errors import InputError, ServiceError
from truthfl.files import PRIVATE_FILE_MODE

ROUNDS = "rounds"
RECENT_BYTES = 100_000  # of the last lines; a line has less than 400


@dataclass(frozen=True)
class RoundRecord:
    """One report.

    round, attempt  as in the training message: counted from 0; the number of the server's start
    received        the digest of the common model, as in the ledger's entries
    sent            the digest of the report as it left her computer
    unchanged       in how many rounds until now the model was the same as before
    returns         how often until now the server went back to rounds that she had answered
    """

    round: int
    attempt: int
    received: str
    sent: str
    unchanged: int = 0
    returns: int = 0


class RoundFile:
    """The open, locked file of one offer's rounds."""

    def __init__(self, path: Path, handle: int) -> None:
        self._path, self._handle = path, handle
        size = os.lseek(handle, 0, os.SEEK_END)
        start = max(0, size - RECENT_BYTES)
        self._recent = os.pread(handle, size - start, start)
        if start:
            self._recent = self._recent[self._recent.find(b"\n") + 1 :]
        whole = self._recent.rfind(b"\n") + 1  # the last write may have been cut off by a crash
        if whole < len(self._recent):
            os.ftruncate(handle, size - len(self._recent) + whole)
            self._recent = self._recent[:whole]

    @property
    def last(self) -> RoundRecord | None:
        """The last report; None if there is none."""
        lines = self._recent.rsplit(b"\n", 2)
        return _record(lines[-2], self._path) if self._recent else None

    def latest_of(self, round_: int) -> RoundRecord | None:
        """The latest report of this round among the recent ones; None if there is none."""
        records = (_record(line, self._path) for line in reversed(self._recent.splitlines()))
        return next((record for record in records if record.round == round_), None)

    def append(self, record: RoundRecord) -> None:
        line = json.dumps(asdict(record), separators=(",", ":")).encode() + b"\n"
        try:
            os.write(self._handle, line)
        except OSError as error:
            raise ServiceError(f"{self._path} cannot be written: {error.strerror}.") from None
        self._recent += line


@contextmanager
def open_rounds(home: Path, offer_hash: str) -> Iterator[RoundFile]:
    """Open and lock the rounds of this offer, in the participant's folder `home`; make the file if there is none."""
    path = rounds_file(home, offer_hash)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, PRIVATE_FILE_MODE)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield RoundFile(path, handle)
    finally:
        os.close(handle)


def rounds_of(home: Path, offer_hash: str) -> list[RoundRecord]:
    """All reports that were sent under this offer, in their order."""
    path = rounds_file(home, offer_hash)
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
    return [_record(line, path) for line in lines]


def rounds_file(home: Path, offer_hash: str) -> Path:
    """The file of this offer; the hash comes from the server and must not name another folder."""
    if not (offer_hash.isascii() and offer_hash.isalnum()):
        raise InputError("this is no hash of an offer.")
    return home / ROUNDS / f"{offer_hash}.jsonl"


def _record(line: bytes, path: Path) -> RoundRecord:
    try:
        return RoundRecord(**json.loads(line))
    except (ValueError, TypeError):
        raise InputError(f"{path} has a line that is no record of a round; it should not be edited.") from None
