"""Records of what a participant's computer sent and received in rounds and audition, compared with a receipt.

The operator's signatures on arrived documents are kept here, so the operator cannot later deny their arrival. The
rounds' file is locked while a report is made, so the second of two simultaneous messages sees what the first one left.
A process keeps the file open for the next round and reads it again only if it has changed. Nobody waits until the data
are on the disk: data that a power failure removed accuse nobody.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from truthfl.coded_text import coded, listed, untranslated
from truthfl.errors import InputError, ServiceError
from truthfl.files import (
    PRIVATE_FILE_MODE,
    lock_handle,
    make_folder,
    unlock_handle,
    wait_for_disk,
    wait_for_name,
    write_file,
)
from truthfl.home import participant_folder
from truthfl.home.node_state import ModelSlots
from truthfl.ledger.canonical import Document, canonical_bytes, read_document
from truthfl.ledger.commands import REMOVED
from truthfl.ledger.documents import signed
from truthfl.ledger.settlement import trained_rounds, was_ended
from truthfl.ledger.signing import PrivateKey, signed_by
from truthfl.ledger.terms import NOT_CONNECTED, NOT_IN_TIME, Offer, list_digest, offer_from

ROUNDS = "rounds"
RECENT_BYTES = 10_000  # read first to find the last line, which has fewer than 400 unless many are missing
MOST_ASIDE = 100  # files left open

_encoder = json.JSONEncoder(separators=(",", ":"))


@dataclass(frozen=True)
class RoundRecord:
    """One report. The last record of a round counts.

    round      counted from 0
    received   the digest of the common model, as in the ledger's entries
    sent       the digest of the report as it left this computer
    unchanged  in how many rounds until now the model was the same as before
    changed    the number of earlier rounds that changed the model, as the server states
    missing    for a masked report: who is missing by the last signed list, by index
    opened     whether shares of the others' own masks were sent for that list
    lists      who was missing in the sums opened from the same model in the rounds directly before
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
    """The open file of one offer's rounds. Use it only while it is locked.

    models  the file of the last model, beside it
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.models = ModelSlots(path.removesuffix(".jsonl") + ".models")
        is_new = not os.path.exists(path)
        self.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, PRIVATE_FILE_MODE)
        if is_new:
            wait_for_name(Path(path))
        self._read: tuple[int, ...] | None = None  # the file's state when it was last read or written here
        self._last: RoundRecord | None = None
        self._earlier: dict[int, RoundRecord] = {}  # of a job whose rounds are repeated; they no longer change

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
        """Read what others wrote since the last lock; False if another file has replaced it."""
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
    """The file for exclusive use: one that was put aside and is still at this path, or a newly opened one."""
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
    """Keep a file open for the next round unless another thread's is; close the least recently used."""
    with _aside_lock:
        unused = [rounds] if _aside.setdefault(rounds.path, rounds) is not rounds else []
        while len(_aside) > MOST_ASIDE:
            unused.append(_aside.pop(next(iter(_aside))))
    for other in unused:
        other.close()


def _forget_aside() -> None:
    """Forget the parent's files in a new process: both processes would share one lock."""
    global _aside_lock
    _aside_lock = Lock()
    for rounds in _aside.values():
        rounds.close()
    _aside.clear()


_aside: dict[str, RoundFile] = {}  # open, unlocked files that no thread uses, by path
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
    """The file of this offer. The hash comes from the server and must not name another folder."""
    return Path(_path(home, offer_hash))


def _path(home: Path, offer_hash: str) -> str:
    if not (offer_hash.isascii() and offer_hash.isalnum()):
        raise InputError("this is no hash of an offer.")
    return f"{home}/{ROUNDS}/{offer_hash}.jsonl"  # used in every round; a Path would take longer than the reading


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
    """A file's state, which changes when it is written or replaced."""
    return file.st_dev, file.st_ino, file.st_size


def _record(line: bytes, path: Path | str) -> RoundRecord:
    try:
        fields = json.loads(line)
        lists = tuple(map(tuple, fields["lists"]))
        return RoundRecord(**fields | {"missing": tuple(fields["missing"]), "lists": lists})
    except (ValueError, TypeError, KeyError):
        raise InputError(f"{path} has a line that is no record of a round; it should not be edited.") from None


TAKEN = b"\1"


def note_taken(home: Path, offer_hash: str, round_: int) -> None:
    """Note that the server took the report of this round, counted from 0."""
    path = _taken_path(home, offer_hash)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE_MODE)
        try:
            os.pwrite(handle, TAKEN, round_)
        finally:
            os.close(handle)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror}.") from None


def taken_rounds(home: Path, offer_hash: str) -> frozenset[int]:
    """The rounds, counted from 0, whose report the server confirmed as taken."""
    path = _taken_path(home, offer_hash)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return frozenset()
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
    return frozenset(round_ for round_, byte in enumerate(content) if byte)


def _taken_path(home: Path, offer_hash: str) -> Path:
    return rounds_file(home, offer_hash).with_suffix(".taken")


AUDITIONS = "auditions"
COMMITTED, OPENED = "committed", "opened"  # what the operator confirms
LONGEST_REASON = 200


@dataclass(frozen=True)
class AuditionRecord:
    """What was sent under an offer.

    commitment  as it was sent
    model       the digest of the model that was sent; None if none was
    committed, opened   the operator's signed confirmations that the commitment and the model arrived; None if none came
    """

    commitment: str
    model: str | None = None
    committed: Mapping[str, Any] | None = None
    opened: Mapping[str, Any] | None = None


def arrival_word(offer: Offer, stage: str, digest: str, key: PrivateKey) -> dict[str, Any]:
    """The operator's signed confirmation that the commitment or model with this digest arrived."""
    return signed(key, _arrival(offer, stage, digest))


def note_commitment(home: Path, offer_hash: str, commitment: str) -> None:
    """Note a commitment before it is sent; the same one may be sent again."""
    if read_record(home, offer_hash) is None:
        _write(home, offer_hash, AuditionRecord(commitment))


def note_opening(home: Path, offer: Offer, model: str, word: object) -> None:
    """Before the model with this digest is sent, note that and the confirmation that its commitment arrived.

    Raise InputError if there was no commitment, or the operator did not sign that it arrived.
    """
    record = read_record(home, offer.hash)
    if record is None:
        raise InputError("no model was committed to for this offer.")
    found = _required(word, offer, COMMITTED, record.commitment)
    _write(home, offer.hash, replace(record, model=model, committed=found))


def note_arrival(home: Path, offer: Offer, word: object) -> None:
    """Keep the confirmation that the model arrived; raise InputError if it is for another model."""
    record = read_record(home, offer.hash)
    if record is None or record.model is None:
        raise InputError("no model was sent for this offer.")
    _write(home, offer.hash, replace(record, opened=_required(word, offer, OPENED, record.model)))


def read_record(home: Path, offer_hash: str) -> AuditionRecord | None:
    """The record of this offer's audition; None if there is none."""
    path = _audition_path(home, offer_hash)
    try:
        return AuditionRecord(**read_document(path.read_bytes(), str(path)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}.") from None
    except TypeError:
        raise InputError(f"{path} is no record of an audition; it should not be edited.") from None


def audition_record_fault(home: Path, offer: Offer, document: Document) -> str | None:
    """How the audition in a receipt differs from what this computer sent; None if it does not."""
    audition, record = document.get("audition"), read_record(home, offer.hash)
    if audition is None or record is None:
        return None
    committed, result = audition["commitment"], audition["result"]
    reason = untranslated(str(result["reason"])[:LONGEST_REASON])
    if committed is None:
        words = "your computer sent the commitment to your model, and by the receipt none came ({reason}){word}"
        return coded("fault.commitment_struck", words, reason=reason, word=_signed_words(record.committed))
    if committed["commitment"] != record.commitment:
        return coded("fault.commitment_other", "it has another commitment than the one that your computer sent")
    if result["model"] == record.model:
        return None
    if result["model"] is not None:
        return coded("fault.own_model", "its audition is of another model than the one that your computer sent")
    words = "your computer sent the model that it trained alone, and by the receipt none was taken ({reason}){word}"
    return coded("fault.model_struck", words, reason=reason, word=_signed_words(record.opened))


def _signed_words(word: Mapping[str, Any] | None) -> str:
    if word is None:
        return ""
    return coded("fault.signed_arrival", "; THE OPERATOR SIGNED THAT IT ARRIVED, and your folder has that")


def _arrival(offer: Offer, stage: str, digest: str) -> dict[str, str]:
    names = {"job": offer.job.name, "client": offer.client.name, "offer": offer.hash}
    return {"kind": "arrival", "stage": stage, **names, "digest": digest}


def _required(word: object, offer: Offer, stage: str, digest: str) -> dict[str, Any]:
    """This confirmation, if it is the operator's for this digest."""
    expected = _arrival(offer, stage, digest)
    if (
        not isinstance(word, Mapping)
        or set(word) != {"document", "signature"}
        or word["document"] != expected
        or not signed_by(str(offer.job.operator_key), expected, str(word["signature"]))
    ):
        what = "the commitment" if stage == COMMITTED else "the model"
        raise InputError(f"the operator did not sign that {what} of this audition arrived; nothing more is sent.")
    return dict(word)


def _write(home: Path, offer_hash: str, record: AuditionRecord) -> None:
    write_file(_audition_path(home, offer_hash), canonical_bytes(asdict(record)), private=True)


def _audition_path(home: Path, offer_hash: str) -> Path:
    """The file of this offer. The hash comes from the server and must not name another folder."""
    if not (offer_hash.isascii() and offer_hash.isalnum()):
        raise InputError("this is no hash of an offer.")
    return home / AUDITIONS / f"{offer_hash}.json"


MOST_NAMED = 5  # rounds named in a sentence
FEW_LATE, LATE_SHARE = 3, 0.02  # this number or share of a job's reports may be late without a fault
LATE = (NOT_IN_TIME, NOT_CONNECTED)
ENDED_BEFORE = coded("fault.ended_before", "the job was ended before it")
NOT_ASKED = coded("fault.not_asked", "you were not asked")


def record_fault(home: Path, document: Document) -> str | None:
    """How a receipt's document differs from what this computer sent and signed; None if it does not."""
    offer = offer_from(document["offer"])
    fault = audition_record_fault(home, offer, document)
    if fault is not None:
        return fault
    stated = {one["round"]: one for one in document["rounds"]}
    uncounted: list[tuple[int, str]] = []
    excused = {report_under_way(home, document), *late_rounds(home, document)}
    for own in rounds_of(home, offer.hash):
        one = stated.get(own.round + 1)
        if one is None:
            if own.round + 1 not in excused:
                uncounted.append((own.round + 1, ENDED_BEFORE if _after_end(document, own) else NOT_ASKED))
            continue
        fault = _round_fault(own, one, masked=offer.job.masked)
        if fault is not None:
            return fault
        if one["taken"] is not True and own.round + 1 not in excused:
            uncounted.append((own.round + 1, untranslated(str(one.get("reason"))[:LONGEST_REASON])))
    if uncounted:
        named: list[str] = [
            coded("fault.uncounted_round", "round {round}: {reason}", round=number, reason=reason)
            for number, reason in uncounted[:MOST_NAMED]
        ]
        if len(uncounted) > MOST_NAMED:
            named.append(coded("fault.uncounted_more", "and {number} more", number=len(uncounted) - MOST_NAMED))
        return coded(
            "fault.uncounted",
            "your computer sent {number} reports that are not counted ({rounds})",
            number=len(uncounted),
            rounds=listed(named),
        )
    return _final_model_fault(home, offer, document)


def report_under_way(home: Path, document: Document) -> int | None:
    """The round whose report was still on its way when its sender was removed or the job was ended; None if none was.

    It can only be the last report that was sent, and the receipt has the operator's signed command for it.
    """
    sent = rounds_of(home, offer_from(document["offer"]).hash)
    if not sent:
        return None
    stated = {one["round"]: one for one in document["rounds"]}.get(sent[-1].round + 1)
    if stated is None:
        return sent[-1].round + 1 if _after_end(document, sent[-1]) else None
    removed = stated["taken"] is not True and str(stated.get("reason", "")).startswith(REMOVED)
    return sent[-1].round + 1 if removed else None


def late_rounds(home: Path, document: Document) -> tuple[int, ...]:
    """The rounds whose report was late or missing according to the receipt; none if there are more than a few.

    A report is recorded before it is sent. If the server confirmed it, the report was in time.
    """
    offer = offer_from(document["offer"])
    sent, taken = rounds_of(home, offer.hash), taken_rounds(home, offer.hash)
    missed = {one["round"] for one in document["rounds"] if not one["taken"] and one.get("reason") in LATE}
    late = tuple(own.round + 1 for own in sent if own.round + 1 in missed and own.round not in taken)
    return late if len(late) <= max(FEW_LATE, LATE_SHARE * len(sent)) else ()


def _after_end(document: Document, own: RoundRecord) -> bool:
    return was_ended(document) and own.round >= trained_rounds(document)


def unasked_rounds(home: Path, document: Document) -> int:
    """The number of rounds, before a removal, in which the receipt has a request and no message came."""
    offer = offer_from(document["offer"])
    answered = {own.round + 1 for own in rounds_of(home, offer.hash)}
    missed = [
        one for one in document["rounds"] if not one["taken"] and not str(one.get("reason", "")).startswith(REMOVED)
    ]
    return sum(one["round"] not in answered for one in missed)


def _round_fault(own: RoundRecord, one: Document, *, masked: bool) -> str | None:
    number = own.round + 1
    if own.received != one["previous"]:
        return coded(
            "fault.round_model",
            "round {round} started from another model than the one that your computer received",
            round=number,
        )
    in_sum = masked and one["taken"] is True and "refused" not in one
    if in_sum and one.get("missing") != list_digest(own.missing):
        return coded(
            "fault.round_list",
            "other people are missing in round {round} than on the list that your computer signed",
            round=number,
        )
    return None


def _final_model_fault(home: Path, offer: Offer, document: Document) -> str | None:
    word = participant_folder.read_final(home, offer)
    if word is not None and word["document"]["model"] != document["test"]["model"]:
        return coded("fault.final_model", "the model that was tested is not the final one that you signed for")
    return None
