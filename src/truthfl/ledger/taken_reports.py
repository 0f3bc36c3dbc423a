"""Which of a participant's reports the operator's server said that it took: a byte per round, beside the rounds.

Nobody waits until it is on the disk: what is missing after a power failure accuses nobody.
"""

from __future__ import annotations

import os
from pathlib import Path

from truthfl.errors import ServiceError
from truthfl.files import PRIVATE_FILE_MODE
from truthfl.ledger.round_record import rounds_file

TAKEN = b"\1"


def note_taken(home: Path, offer_hash: str, round_: int) -> None:
    """Note that the server took the report of this round, counted from 0."""
    path = _path(home, offer_hash)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE_MODE)
        try:
            os.pwrite(handle, TAKEN, round_)
        finally:
            os.close(handle)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror}.") from None


def taken_rounds(home: Path, offer_hash: str) -> frozenset[int]:
    """The rounds, counted from 0, whose report the server said that it took."""
    path = _path(home, offer_hash)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
    return frozenset(round_ for round_, byte in enumerate(content) if byte)


def _path(home: Path, offer_hash: str) -> Path:
    return rounds_file(home, offer_hash).with_suffix(".taken")
