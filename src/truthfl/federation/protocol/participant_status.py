"""One participant of a job as the operator sees her."""

from __future__ import annotations

from dataclasses import dataclass

from truthfl.federation.protocol.job_tally import ACCEPTED, DECLINED, NO_ANSWER, ClientTally, JobTally, RefusedReply
from truthfl.federation.protocol.live_status import LiveClient, LiveStatus
from truthfl.federation.protocol.status_parts import worth_by_client
from truthfl.texts import plain


@dataclass(frozen=True)
class ParticipantStatus:
    """One client of the job; money is in the job's currency.

    state             in a word or two, as `STATES`
    reason            why she is left out, held, stopped or removed; "" otherwise
    invited_until     when the invitation expires that she has not used yet; None if she has none
    samples           that she enrolled with; None before
    connected         None if no server runs
    answer            accepted, declined, or no answer in time; None before
    labels_done       None if it is not known
    solo_loss, passed of the audition; None before or without one
    refused, refusals how many of her replies were not taken, and the last ones
    cost              of her work, as her offer supposes it
    expected_pay      if all are honest
    most_pay          the cap; without one, what a perfect model would pay
    worth             of her work to the operator, measured on pilot data
    settled_pay       None before the settlement
    payment           due, sent, confirmed, failed or not due; None before the settlement
    """

    name: str
    state: str
    reason: str
    invited_until: str | None
    samples: int | None
    connected: bool | None
    last_seen: str | None
    reply_seconds: float | None
    answer: str | None
    labels_asked: int | None
    labels_done: int | None
    batch_size: int | None
    solo_loss: float | None
    passed: bool | None
    rounds_asked: int
    rounds_delivered: int
    refused: int
    refusals: tuple[RefusedReply, ...]
    cost: float | None
    expected_pay: float | None
    most_pay: float | None
    worth: float | None
    settled_pay: float | None
    payment: str | None


AWAITED, INVITED, ADMITTED, ABSENT = "awaited", "invited", "admitted", "absent"  # of who has not enrolled
STATES = (
    AWAITED,
    INVITED,
    ADMITTED,
    ABSENT,
    "enrolled",
    "offered",
    "labeling",
    "auditioning",
    "held",
    "passed",
    "training",
    "settled",
    DECLINED,
    NO_ANSWER,
    "left out",
    "stopped",
    "removed",
)


def participants_of(tally: JobTally, live: LiveStatus | None, *, running: bool) -> tuple[ParticipantStatus, ...]:
    """All clients of the job, in its order."""
    worth = worth_by_client(tally)
    seen = {} if live is None else live.clients
    return tuple(
        _participant(tally, client, seen.get(client.name), worth.get(client.name), running=running)
        for client in tally.clients.values()
    )


def _participant(
    tally: JobTally, client: ClientTally, live: LiveClient | None, worth: float | None, *, running: bool
) -> ParticipantStatus:
    asked, delivered = rounds_of(tally, client)
    offer, audition = client.offer, client.audition
    units = 1 if tally.terms is None else tally.terms.minor_units
    state, reason = _state(tally, client)
    return ParticipantStatus(
        name=plain(client.name),
        state=state,
        reason=plain(reason),
        invited_until=client.invited_until if state == INVITED else None,
        samples=client.samples,
        connected=(live is not None and live.connected) if running else None,
        last_seen=None if live is None else live.last_seen,
        reply_seconds=None if live is None else live.reply_seconds,
        answer=client.answer,
        labels_asked=None if offer is None else offer.labels,
        labels_done=_labels_done(client, live, delivered),
        batch_size=None if offer is None else offer.batch_size,
        solo_loss=None if audition is None else audition["solo_loss"],
        passed=None if audition is None else audition["passed"],
        rounds_asked=asked,
        rounds_delivered=delivered,
        refused=client.refused,
        refusals=tuple(reversed(client.refusals)),
        cost=None if offer is None else offer.cost,
        expected_pay=None if offer is None else offer.expected_pay,
        most_pay=None if offer is None else offer.most,
        worth=worth,
        settled_pay=None if client.settled is None else client.settled / units,
        payment=None if client.payment is None else plain(client.payment["state"]),
    )


def rounds_of(tally: JobTally, client: ClientTally) -> tuple[int, int]:
    """The number of rounds in which she was asked for a report, and of those in which hers was taken."""
    taking_part = client.version == tally.version and client.takes_part
    asked = client.asked_listed + (tally.all_asked if taking_part else 0)
    return asked, max(asked - client.missing, 0)


def _labels_done(client: ClientTally, live: LiveClient | None, delivered: int) -> int | None:
    """What the server was told, or all if she has worked with them."""
    if client.offer is None:
        return None
    if client.committed or delivered > 0:
        return client.offer.labels
    return None if live is None else live.labeled


def _state(tally: JobTally, client: ClientTally) -> tuple[str, str]:
    """Her state, and the reason if it is one that ends her part."""
    if client.name in tally.commands.removed:
        return "removed", tally.commands.removed[client.name]
    if client.audition is None and client.held is not None:
        return "held", client.held
    if client.audition is not None and not client.audition["passed"]:
        return "stopped", client.audition["reason"]
    if client.left_out is not None:
        return "left out", client.left_out
    if client.answer in (DECLINED, NO_ANSWER):
        return client.answer, ""
    if client.settled is not None:
        return "settled", ""
    if client.answer == ACCEPTED and client.version == tally.version:
        return _working_state(tally, client), ""
    if client.offer is not None:
        return "offered", ""
    return ("enrolled" if client.samples is not None else _state_before(tally, client)), ""


def _state_before(tally: JobTally, client: ClientTally) -> str:
    """Where somebody is who has not enrolled; when offers are made without her, she is absent."""
    if tally.version:
        return ABSENT
    return ADMITTED if client.admitted else AWAITED if client.invited_until is None else INVITED


def _working_state(tally: JobTally, client: ClientTally) -> str:
    """What somebody with a contract is at."""
    if "start" in tally.last_at:
        return "training"
    if client.audition is not None:
        return "passed"
    return "auditioning" if client.committed else "labeling"
