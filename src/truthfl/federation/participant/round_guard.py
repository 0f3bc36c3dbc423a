"""Which rounds a participant answers: those of her contract, once each, in order, from a model that follows the last.

An operator who may choose the models that she trains from can make her reports tell more of her data than the joint
training needs. A server that was stopped repeats a few rounds; that is allowed within limits. Imports
`received_models`, `learning`, the ledger's `participant_folder`, `round_record`, `round_terms`, `terms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from truthfl.errors import InputError
from truthfl.federation.participant.received_models import REPEATABLE_ROUNDS
from truthfl.learning.model import Params
from truthfl.ledger import participant_folder
from truthfl.ledger.round_record import RoundFile, RoundRecord, open_rounds
from truthfl.ledger.round_terms import MEAN, OWN
from truthfl.ledger.terms import Offer

MOST_RETURNS = 10  # of a job: how often the server may go back to rounds that were answered
MOST_UNCHANGED = 10  # of a job: rounds from the same model as the one before, of reports that are not masked
BOUND_SLACK = 1.001  # for rounding in sums


@dataclass(frozen=True)
class AskedRound:
    """What a training message says of its round: as `RoundCall` of the protocol.

    received  the digest of the model
    changed   the number of earlier rounds that changed the model, as the server says
    masked    whether the report is masked, so that the server sees it only in a sum
    """

    round: int
    attempt: int
    unchanged: int
    received: str
    masked: bool = False
    changed: int = 0


def asked_round(fields: Mapping[str, Any], received: str) -> AskedRound:
    """The round that these fields of a message ask for; `received` is the digest of its model."""
    round_, attempt, unchanged = fields.get("round"), fields.get("attempt", 0), fields.get("unchanged", 0)
    if not all(type(number) is int and number >= 0 for number in (round_, attempt, unchanged)):
        raise InputError("the message's round, attempt or unchanged is no whole number from 0 on.")
    changed = fields.get("changed", round_)
    if type(changed) is not int or not 0 <= changed <= cast(int, round_):
        raise InputError("the message's number of rounds that changed the model is none from 0 to its round.")
    return AskedRound(cast(int, round_), attempt, unchanged, received, "peers" in fields, changed)


@contextmanager
def answering(
    home: Path, offer: Offer, asked: AskedRound, model: Params, start: Callable[[], Params]
) -> Iterator[Callable[[str], None]]:
    """Refuse a round that does not follow; else let the report be made, and keep what was received and sent.

    The block calls the function that it gets with the digest of the report before it sends the report.

    model, start   the common model, and that of the terms, from which training starts
    """
    if asked.round >= offer.job.rounds:
        raise InputError(f"round {asked.round + 1:,} is asked for; the contract has {offer.job.rounds:,} rounds.")
    if participant_folder.has_final(home, offer):
        raise InputError("the final model of this job is signed for; no more rounds are answered.")
    with open_rounds(home, offer.hash) as rounds:
        last = rounds.last
        record = _first_record(asked) if last is None else _next_record(asked, last, rounds)
        _require_near(rounds, offer, asked, model, start())

        def sent(report: str) -> None:
            if offer.job.report_bounds:
                content = np.ascontiguousarray(model, dtype="<f4").data.cast("B")
                rounds.models.keep(asked.received, content, None if last is None else last.received)
            sent_record = replace(record, sent=report)
            if sent_record != last:  # who asks the same again adds no line
                rounds.append(sent_record)

        yield sent


def _first_record(asked: AskedRound) -> RoundRecord:
    return RoundRecord(asked.round, asked.attempt, asked.received, "")


def _next_record(asked: AskedRound, last: RoundRecord, rounds: RoundFile) -> RoundRecord:
    """The record of a round after the last one; raise InputError if it is not one that may come next."""
    number = asked.round + 1
    record = RoundRecord(asked.round, asked.attempt, asked.received, last.sent, last.unchanged, last.returns)
    if asked.attempt < last.attempt:
        raise InputError(f"round {number:,} is of an earlier start of the server than the last one.")
    if asked.round == last.round and asked.received == last.received:
        return record
    if asked.round > last.round:
        return replace(record, unchanged=_unchanged(asked, last)) if asked.received == last.received else record
    if asked.attempt == last.attempt:
        what = "was answered from another model" if asked.round == last.round else "is over"
        raise InputError(f"round {number:,} {what}; each is answered once, in order.")
    if last.round - asked.round > REPEATABLE_ROUNDS:
        raise InputError(f"the server goes back from round {last.round + 1:,} to {number:,}; that is too far.")
    if last.returns >= MOST_RETURNS:
        raise InputError(f"the server has gone back {last.returns} times in this job; that is too often.")
    earlier = rounds.latest_of(asked.round)
    if earlier is not None and earlier.attempt == last.attempt and earlier.received != asked.received:
        raise InputError(f"the server goes back to round {number:,} with another model than it had sent.")
    return replace(record, returns=last.returns + 1)


def _unchanged(asked: AskedRound, last: RoundRecord) -> int:
    """How many rounds began with the model of the round before, this one included."""
    if asked.received != last.received:
        return last.unchanged
    if asked.unchanged < asked.round - last.round:
        raise InputError(f"round {asked.round + 1:,} has the same model as round {last.round + 1:,}, without a reason.")
    if asked.masked:  # one client can have sums refused to the end; that must not cost the others their rounds
        return last.unchanged
    if last.unchanged >= MOST_UNCHANGED:
        raise InputError(f"the model has stayed the same in {last.unchanged} rounds; no more such rounds are answered.")
    return last.unchanged + 1


def _require_near(rounds: RoundFile, offer: Offer, asked: AskedRound, model: Params, initial: Params) -> None:
    """Raise InputError unless the model is the first one, or as near to the last as the offer's bound allows."""
    if model.shape != initial.shape or not np.isfinite(model).all():
        raise InputError("the common model has another shape than the contract's, or NaN or infinity.")
    if asked.round == 0 and not np.array_equal(model, initial):
        raise InputError("the first round has another model than the one from which training starts by the offer.")
    if not offer.job.report_bounds or asked.round == 0 or offer.job.aggregation == OWN:  # of which no bound is known
        return
    last, earlier, steps = rounds.last, initial, asked.round
    kept = None if last is None else rounds.models.model(last.received, model.nbytes)
    if last is not None and kept is not None:  # else it was lost in a crash, or she has answered no round
        earlier, steps = np.frombuffer(kept, dtype="<f4"), asked.round - last.round
        if asked.attempt > last.attempt:  # both may have moved from where the server went back to
            steps += 2 * REPEATABLE_ROUNDS
    apart = model - earlier
    with np.errstate(over="ignore"):  # infinity is far away
        distance = math.sqrt(float(np.square(apart, out=apart).sum()))  # a norm by BLAS wakes threads
    bound = steps * _largest_change(offer, range(max(0, asked.changed - steps), asked.changed + 1))
    if distance > bound:
        raise InputError(
            f"the model of round {asked.round + 1:,} is {distance:.3g} away from the last one; by the offer it is at "
            f"most {bound:.3g}."
        )


def _largest_change(offer: Offer, changed: Iterable[int]) -> float:
    """The longest change of the model in a round, if every report keeps the offer's bound B after so many changes.

    A mean with weights p_i / q_i changes it by at most B over the smallest q_i; a median of each coordinate by √2 B, a
    trimmed mean that keeps at least a quarter of the reports by 2 B.
    """
    robust = 1.0 if offer.job.aggregation == MEAN else 2.0
    bound = max(offer.job.bound_of_round(earlier) for earlier in changed)
    return BOUND_SLACK * robust * bound / offer.job.least_participation
