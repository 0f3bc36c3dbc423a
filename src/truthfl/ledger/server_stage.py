"""What the server last told a participant's node about its stage, in her folder: what it waits for, and until when.

The server says how many seconds are left, and the end is kept by her own computer's clock, so that the two clocks need
not agree.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from truthfl.errors import InputError, ServiceError
from truthfl.files import write_file
from truthfl.ledger.canonical import canonical_bytes, read_document

STAGES = "stages"
LABELING, LABELED, AUDITIONING, STOPPED = "labeling", "labeled", "auditioning", "stopped"
LONGEST_SECONDS = 10 * 366 * 86_400  # a longer wait is none
SAME_SECONDS = 1.0  # ends that differ by less are the same


@dataclass(frozen=True)
class ServerStage:
    """The server's stage, as one participant's node knows it; times are seconds since 1970 by her clock.

    stage      "labeling": it waits for her labels; "labeled": for those of the others; "auditioning": for the models
               trained alone; "stopped": it asks her for nothing more
    until      when it stops waiting; None if it did not say
    paused_at  since when the operator pauses the job; None if it is not paused
    """

    stage: str
    until: float | None = None
    paused_at: float | None = None

    def seconds_left(self, now: float) -> float | None:
        """How long the server still waits; while the job is paused, no time passes."""
        return None if self.until is None else max(self.until - (self.paused_at or now), 0.0)


def note_stage(home: Path, offer_hash: str, stage: str, seconds_left: object = None) -> None:
    """Write that the server is in this stage; `seconds_left` is what it says, which is not trusted."""
    sound = type(seconds_left) in (int, float) and 0 <= seconds_left <= LONGEST_SECONDS  # type: ignore[operator]
    until = time.time() + float(seconds_left) if sound else None  # type: ignore[arg-type]
    found, known = ServerStage(stage, until), read_stage(home, offer_hash)
    if known is None or not _same(known, found):
        _write(home, offer_hash, found)


def note_pause(home: Path, offer_hash: str, *, paused: bool) -> None:
    """Write that the operator paused the job, or resumed it: then the server waits longer by the pause."""
    known, now = read_stage(home, offer_hash), time.time()
    if known is None or paused == (known.paused_at is not None):
        return
    if paused:
        _write(home, offer_hash, replace(known, paused_at=now))
        return
    later = now - (known.paused_at or now)
    _write(home, offer_hash, replace(known, paused_at=None, until=None if known.until is None else known.until + later))


def read_stage(home: Path, offer_hash: str) -> ServerStage | None:
    """What was written last under this offer; None if nothing was, or if it cannot be read."""
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
    """The file of this offer; the hash comes from the server and must not name another folder."""
    if not (offer_hash.isascii() and offer_hash.isalnum()):
        raise InputError("this is no hash of an offer.")
    return home / STAGES / f"{offer_hash}.json"
