"""Which rounds a participant's node answers, and which models and keys it keeps for that.

An operator who chooses the models that participants train from could make reports reveal more about their data than the
joint training needs. So a round is answered for one model only. A server that was stopped, or lost its model, asks for
the same rounds again and gets the same bytes.

A round's noise follows from a secret on the participant's disk, the offer, the round and the model. A second report on
another model would halve the noise, and the (ε, δ) of the offer would not hold. The batches of masked reports also
follow from the secret: anybody who knew which samples are in which batch could solve for single samples.

Everything is kept in files because each message may be handled by a new process.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np

from truthfl.errors import InputError, ServiceError
from truthfl.files import PRIVATE_FILE_MODE, lock_handle, make_folder, write_file
from truthfl.home import participant_folder
from truthfl.home.record import RoundFile, RoundRecord, last_round, open_rounds
from truthfl.learning.data.datasets import npy_bytes, read_npy
from truthfl.learning.models.model import Params
from truthfl.learning.people.behaviour import Behaviour
from truthfl.learning.privacy import DrawKey, subkey
from truthfl.learning.training.local_training import updated_memory
from truthfl.ledger.terms import MEAN, OWN, Offer, sums_fault

SECRET, ANSWERED = "noise.secret", "noise"
SECRET_BYTES = 32


def kept_secret(home: Path) -> DrawKey:
    """The secret in the participant's folder; made if there is none."""
    path = home / SECRET
    write_file(path, secrets.token_bytes(SECRET_BYTES), private=True, keep_existing=True)
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise InputError(f"{path} is damaged: it has {len(secret)} bytes and not {SECRET_BYTES}; remove it.")
    return secret


def key_of_audition(secret: DrawKey, offer_hash: str) -> DrawKey:
    """The key of the draws of the solo training."""
    return subkey(secret, offer_hash, "audition")


def key_of_batches(secret: DrawKey, offer_hash: str, round_: int) -> DrawKey:
    """The key of the batches of a masked report; a round is answered from one model only: see `round_guard`."""
    return subkey(secret, offer_hash, "batches", round_)


def key_of_round(secret: DrawKey, home: Path, offer_hash: str, round_: int, common: Params) -> DrawKey:
    """The key of the draws of a round; raise InputError if the round was answered for another common model."""
    digest = sha256(common.tobytes()).hexdigest()
    note = home / ANSWERED / offer_hash / str(round_)
    write_file(note, digest, private=True, keep_existing=True)
    if note.read_text(encoding="utf-8") != digest:
        raise InputError(
            f"round {round_ + 1} was answered for another model; with noise, it is answered for one model only."
        )
    return subkey(secret, offer_hash, round_, digest)


RECEIVED = "received"


def received_models(folder: Path, behaviour: Behaviour, common: Params, round_: int) -> list[Params]:
    """Keep this round's model; return the models that the behaviour remembers, this round's last.

    Files are named by round, so that a repeated round ignores the models of later rounds.
    """
    kept = {int(path.stem): path for path in folder.glob("*.npy") if path.stem.isdecimal()}
    earlier = sorted(number for number in kept if number < round_)
    write_file(folder / f"{round_}.npy", npy_bytes(common), sync=False)
    for number in earlier[: -behaviour.remembers - 1]:
        with suppress(OSError):
            kept[number].unlink()
    return updated_memory(behaviour, [read_npy(kept[number]) for number in earlier[-behaviour.remembers :]], common)


LOCKS, FIRST_ROUND, AUDITION = "locks", "first-round", "audition"
MOST_UNCHANGED = 10  # of a job: rounds from the same model as the one before, of reports that are not masked
BOUND_SLACK = 1.001  # for rounding in sums


@dataclass(frozen=True)
class AskedRound:
    """A training message's fields on its round, as in the protocol's `RoundCall`.

    changed   the number of earlier rounds that changed the model, as the server states
    received  the digest of the model
    """

    round: int
    unchanged: int
    changed: int
    received: str


def asked_round(fields: Mapping[str, Any], received: str) -> AskedRound:
    """The round that these fields of a message ask for; `received` is the digest of its model."""
    round_, unchanged, changed = numbers = [fields.get(name) for name in ("round", "unchanged", "changed")]
    if not all(type(number) is int and number >= 0 for number in numbers):
        raise InputError("the message's round, unchanged or changed is no whole number from 0 on.")
    asked = AskedRound(cast(int, round_), cast(int, unchanged), cast(int, changed), received)
    if asked.changed > asked.round:
        raise InputError("the message's number of rounds that changed the model is none from 0 to its round.")
    return asked


@dataclass(eq=False)
class Answering:
    """A round that is being answered; its file is locked.

    record  the record of the round, which is written when the report's digest is known
    before  the record of this round in the file, if the round is asked for again
    """

    rounds: RoundFile
    record: RoundRecord
    before: RoundRecord | None
    keep_model: Callable[[], None]

    def sent(self, report: str, missing: Collection[int] = ()) -> RoundRecord:
        """Write the record before the report with this digest is sent; raise InputError if another one was sent.

        missing  for a masked report: who is missing by the first signed list
        """
        if self.before is None:
            self.keep_model()
            self.rounds.append(replace(self.record, sent=report, missing=tuple(sorted(missing))))
            return cast(RoundRecord, self.rounds.last)
        if self.before.sent != report:
            raise InputError(
                f"round {self.record.round + 1:,} was answered with another report; each is answered once."
            )
        return self.before


@contextmanager
def answering(
    home: Path,
    offer: Offer,
    asked: AskedRound,
    model: Params,
    start: Callable[[], Params],
) -> Iterator[Answering]:
    """Refuse a round that does not follow; else let the report be made, and keep what was received and sent.

    model, start   the common model, and the model of the terms from which training starts
    """
    if asked.round >= offer.job.rounds:
        raise InputError(f"round {asked.round + 1:,} is asked for; the contract has {offer.job.rounds:,} rounds.")
    with ExitStack() as held:
        rounds = held.enter_context(open_rounds(home, offer.hash))
        last, before = rounds.last, _repeated(rounds, asked)
        if last is None:
            held.enter_context(one_at_a_time(home, FIRST_ROUND))
            _require_no_other_sums(home, offer)
        if before is None:
            if participant_folder.has_final(home, offer):
                raise InputError("the final model of this job is signed for; no more rounds are answered.")
            record = _next_record(asked, last, masked=offer.job.masked)
            _require_near(rounds, offer, asked, model, start())

        def keep_model() -> None:
            if offer.job.report_bounds:
                content = np.ascontiguousarray(model, dtype="<f4").data.cast("B")
                rounds.models.keep(asked.received, content, None if last is None else last.received)

        yield Answering(rounds, before or record, before, keep_model)


def _repeated(rounds: RoundFile, asked: AskedRound) -> RoundRecord | None:
    """The record of a round that is asked for again; raise InputError if it is over, or from another model."""
    number, last = asked.round + 1, rounds.last
    if last is None or asked.round > last.round:
        return None
    before = rounds.record_of(asked.round)
    if before is None:
        raise InputError(f"round {number:,} is over; each is answered once, in order.")
    if (asked.received, asked.changed) != (before.received, before.changed):
        raise InputError(f"round {number:,} was answered from another model; each is answered once, in order.")
    return before


@contextmanager
def one_at_a_time(home: Path, what: str) -> Iterator[None]:
    """Lock the participant's folder against other threads and processes."""
    path = home / LOCKS / f"{what}.lock"
    try:
        make_folder(path.parent)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE_MODE)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        lock_handle(handle)
        yield
    finally:
        os.close(handle)


def _require_no_other_sums(home: Path, offer: Offer) -> None:
    """Raise InputError if rounds were answered under another offer of the job.

    With noise, two answers to a round would halve it. For masked reports, the difference of two sums with one
    participant more or less reveals that participant's report.
    """
    for other in participant_folder.offers(home, {offer.hash}):
        if other.job.name == offer.job.name and last_round(home, other.hash) is not None:
            raise InputError(
                f"rounds of job {other.job.name} were answered under another offer; each job has rounds under one "
                "offer. The operator can begin a new job."
            )


def _next_record(asked: AskedRound, last: RoundRecord | None, *, masked: bool) -> RoundRecord:
    """The record of a round after the last one; raise InputError if it is not one that may come next."""
    if last is None:
        return RoundRecord(asked.round, asked.received, "", changed=asked.changed)
    unchanged = last.unchanged if masked else _unchanged(asked, last)
    lists = _lists(asked, last)
    fewest = last.changed + int(asked.received != last.received)
    most = fewest if asked.received == last.received else last.changed + asked.round - last.round
    if not fewest <= asked.changed <= most:  # the bound of a round follows from it
        raise InputError(
            f"the message of round {asked.round + 1:,} counts {asked.changed:,} rounds that changed the model; after "
            f"those before round {last.round + 1:,} it can be from {fewest:,} to {most:,}."
        )
    return RoundRecord(asked.round, asked.received, "", unchanged, asked.changed, lists=lists)


def _lists(asked: AskedRound, last: RoundRecord) -> tuple[tuple[int, ...], ...]:
    """Who was missing in the sums opened from this round's model; raise InputError if no other sum is allowed.

    The mean of many sums with a report minus the mean of many sums without it would reveal the report.
    """
    if asked.received != last.received:
        return ()
    lists = (*last.lists, last.missing) if last.opened else last.lists
    fault = sums_fault(lists)
    if fault is not None:
        raise InputError(f"{fault}; round {asked.round + 1:,} would be another one.")
    return lists


def _unchanged(asked: AskedRound, last: RoundRecord) -> int:
    """How many rounds began with the model of the round before, this one included; for reports that are not masked."""
    if asked.received != last.received:
        return last.unchanged
    if asked.unchanged < asked.round - last.round:
        raise InputError(f"round {asked.round + 1:,} has the same model as round {last.round + 1:,}, without a reason.")
    if last.unchanged >= MOST_UNCHANGED:
        raise InputError(f"the model has stayed the same in {last.unchanged} rounds; no more such rounds are answered.")
    return last.unchanged + 1


def _require_near(rounds: RoundFile, offer: Offer, asked: AskedRound, model: Params, initial: Params) -> None:
    """Raise InputError unless the model is the first one, or as near to the last as the offer's bound allows.

    Nobody has all solo models. So of a mean of them, as the first model, only its length is checked here, and its
    digest by the receipt.
    """
    if model.shape != initial.shape or not np.isfinite(model).all():
        raise InputError("the common model has another shape than the contract's, or NaN or infinity.")
    if asked.round == 0 and not offer.job.starts_from_solo_models and not np.array_equal(model, initial):
        raise InputError("the first round has another model than the one from which training starts by the offer.")
    if asked.round and (not offer.job.report_bounds or offer.job.aggregation == OWN):  # for which no bound is known
        return
    last, earlier, steps, start = rounds.last, initial, asked.round, 0.0
    kept = None if last is None else rounds.models.model(last.received, model.nbytes)
    if last is not None and kept is not None:  # otherwise it was lost in a crash, or no round was answered
        earlier, steps = np.frombuffer(kept, dtype="<f4"), asked.round - last.round
    elif offer.job.starts_from_solo_models:  # a mean of models that are at most as long as the offer allows
        earlier, start = np.zeros_like(initial), BOUND_SLACK * (offer.job.solo_bound or math.inf)
    apart = model - earlier
    with np.errstate(over="ignore"):  # infinity is far away
        distance = math.sqrt(float(np.square(apart, out=apart).sum()))  # a norm by BLAS wakes threads
    change = _largest_change(offer, range(max(0, asked.changed - steps), asked.changed + 1)) if steps else 0.0
    bound = start + steps * change
    if distance > bound:
        raise InputError(
            f"the model of round {asked.round + 1:,} is {distance:.3g} away from "
            f"{'0' if start else 'the last one'}; by the offer it is at most {bound:.3g}."
        )


def _largest_change(offer: Offer, changed: Iterable[int]) -> float:
    """The longest change of the model in a round, if every report keeps the offer's bound B after this many changes.

    A mean with weights p_i / q_i changes it by at most B over the smallest q_i, a median of each coordinate by at most
    √2 B, and a trimmed mean that keeps at least a quarter of the reports by at most 2 B.
    """
    robust = 1.0 if offer.job.aggregation == MEAN else 2.0
    bound = max(offer.job.bound_of_round(earlier) for earlier in changed)
    return BOUND_SLACK * robust * bound / offer.job.least_participation
