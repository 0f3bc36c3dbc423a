"""The status of one job for the operator: from the ledger, and from the running server if there is one.

`StatusReader` serves repeated readings: it reads new entries only. Every text in a status is plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from truthfl.federation.operator.live_status import (
    AUDITIONING,
    DECIDING,
    ENROLLING,
    LABELING,
    OFFERING,
    OVER,
    TESTING,
    TRAINING,
    LiveClient,
    LiveStatus,
    RoundWaits,
)
from truthfl.federation.operator.row_words import LedgerRow, ledger_row
from truthfl.ledger.book import Ledger
from truthfl.ledger.job_state import (
    ACCEPTED,
    DECLINED,
    NO_ANSWER,
    ClientState,
    JobState,
    PlanNumbers,
    RefusedReply,
    RoundPoint,
)
from truthfl.texts import plain


@dataclass(frozen=True)
class MoneyStatus:
    """What the job may cost and has cost, in its currency, over the offers that are in force.

    minor_units   how many minor units make one unit of the currency
    has_cap       whether pay has a cap; otherwise `most` is what a perfect model would cost
    cost          of the work, as the offers suppose it
    expected      pay if all are honest
    committed     the part of it that belongs to accepted offers
    most          of the offers that are open or accepted
    settled       None before the settlement
    due, sent, paid, failed   of what is settled, by the state of the payments
    """

    currency: str
    minor_units: int
    has_cap: bool
    cost: float
    expected: float
    committed: float
    most: float
    settled: float | None
    due: float
    sent: float
    paid: float
    failed: float


@dataclass(frozen=True)
class RoundTimes:
    """Duration of the rounds since the server started: their number, the total, and the last ones singly."""

    count: int
    seconds: float
    last: tuple[float, ...]


def money_of(job: JobState) -> MoneyStatus | None:
    """The job's money; None before there are offers."""
    terms, open_clients = job.terms, _open_clients(job)
    if terms is None:
        return None
    units = terms.minor_units
    offers = [client.numbers for client in open_clients if client.numbers is not None]
    settlements = [client.settled for client in job.clients.values() if client.settled is not None]
    by_state = dict.fromkeys(("due", "sent", "confirmed", "failed"), 0)
    for client in job.clients.values():
        if client.payment is not None and client.payment["state"] in by_state:
            by_state[client.payment["state"]] += client.payment["amount"]
    return MoneyStatus(
        currency=plain(terms.currency),
        minor_units=units,
        has_cap=_has_cap(job.in_force),
        cost=sum(offer.cost for offer in offers),
        expected=sum(offer.expected_pay for offer in offers),
        committed=sum(one.numbers.expected_pay for one in open_clients if one.numbers and one.answer == ACCEPTED),
        most=sum(offer.most for offer in offers),
        settled=sum(settlements) / units if settlements else None,
        due=by_state["due"] / units,
        sent=by_state["sent"] / units,
        paid=by_state["confirmed"] / units,
        failed=by_state["failed"] / units,
    )


def plan_of(job: JobState) -> PlanNumbers | None:
    """The last plan with its offers; None before there is one."""
    plan, terms = job.plan, job.terms
    if plan is None or terms is None:
        return None
    pairs = sorted((one.numbers.labels, one.numbers.batch_size) for one in job.in_force if one.numbers is not None)
    return replace(
        plan,
        contract=plain(terms.contract),
        labels=sum(labels for labels, _ in pairs),
        asked=tuple((*pair, len(list(same))) for pair, same in groupby(pairs)),
    )


def worth_by_client(job: JobState) -> dict[str, float]:
    """By name: what the plan measured each client's work to be worth; empty in ledgers that do not say it."""
    names = [client.name for client in job.in_force]
    return dict(zip(names, job.worth, strict=True)) if len(job.worth) == len(names) else {}


def times_of(live: LiveStatus | None) -> RoundTimes:
    """The times of rounds that the server wrote down."""
    if live is None:
        return RoundTimes(0, 0.0, ())
    return RoundTimes(live.rounds_timed, live.seconds_in_rounds, tuple(live.round_seconds))


def _open_clients(job: JobState) -> list[ClientState]:
    """The clients whose offers are open or accepted."""
    return [client for client in job.in_force if client.answer in (None, ACCEPTED)]


def _has_cap(clients: Sequence[ClientState]) -> bool:
    """Whether the contract caps pay; all offers of a job have one contract."""
    return next((one.offers[one.version].contract.has_cap for one in clients if one.numbers is not None), True)


@dataclass(frozen=True)
class ParticipantStatus:
    """One client of the job; money is in the job's currency.

    state             in a word or two, as `STATES`
    reason            why the client is left out, held, stopped or removed; "" otherwise
    invited_until     when the unused invitation expires; None if there is none
    samples           that the client enrolled with; None before
    connected         None if no server runs
    answer            accepted, declined, or no answer in time; None before
    labels_done       None if it is not known
    solo_loss, passed of the audition; None before or without one
    refused, refusals how many of the client's replies were refused, and the last ones
    cost              of the client's work, as the offer assumes it
    expected_pay      if all are honest
    most_pay          the cap; without one, what a perfect model would pay
    worth             of the client's work to the operator, measured on pilot data
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


AWAITED, INVITED, ADMITTED, ABSENT = "awaited", "invited", "admitted", "absent"  # clients who have not enrolled
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


def participants_of(job: JobState, live: LiveStatus | None, *, running: bool) -> tuple[ParticipantStatus, ...]:
    """All clients of the job, in its order."""
    worth = worth_by_client(job)
    seen = {} if live is None else live.clients
    return tuple(
        _participant(job, client, seen.get(client.name), worth.get(client.name), running=running)
        for client in job.clients.values()
    )


def _participant(
    job: JobState, client: ClientState, live: LiveClient | None, worth: float | None, *, running: bool
) -> ParticipantStatus:
    asked, delivered = job.rounds_of(client)
    offer, audition = client.numbers, client.audition
    units = 1 if job.terms is None else job.terms.minor_units
    state, reason = _state(job, client)
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
        passed=client.passed,
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


def _labels_done(client: ClientState, live: LiveClient | None, delivered: int) -> int | None:
    """The number that the server was told, or all labels if the client has trained with them."""
    if client.numbers is None:
        return None
    if client.committed or delivered > 0:
        return client.numbers.labels
    return None if live is None else live.labeled


def _state(job: JobState, client: ClientState) -> tuple[str, str]:
    """The client's state, and the reason if the state ends their part."""
    removed = job.commands.state.removed
    if client.name in removed:
        return "removed", removed[client.name]
    if client.audition is None and client.held is not None:
        return "held", client.held
    if client.audition is not None and not client.passed:
        return "stopped", client.audition["reason"]
    if client.left_out is not None:
        return "left out", client.left_out
    if client.answer in (DECLINED, NO_ANSWER):
        return client.answer, ""
    if client.settled is not None:
        return "settled", ""
    if client.answer == ACCEPTED and client.version == job.version:
        return _working_state(job, client), ""
    if client.version:
        return "offered", ""
    return ("enrolled" if client.samples is not None else _state_before(job, client)), ""


def _state_before(job: JobState, client: ClientState) -> str:
    """The state of a client who has not enrolled; absent if offers are made without them."""
    if job.version:
        return ABSENT
    return ADMITTED if client.admitted else AWAITED if client.invited_until is None else INVITED


def _working_state(job: JobState, client: ClientState) -> str:
    """The state of a client with a contract."""
    if "start" in job.last_at:
        return "training"
    if client.audition is not None:
        return "passed"
    return "auditioning" if client.committed else "labeling"


@dataclass(frozen=True)
class JobStatus:
    """One job, as it is now. Times are ISO 8601 in UTC.

    waits           for whom the round waits, once it takes longer than usual; None for nobody
    running         whether a server runs this job
    address         HOST:PORT that participants use; "" unless it runs
    stage, since    the present or last stage, and when it began
    deadline        when the server stops waiting in this stage; None if it does not wait or does not run
    ended           why the operator ended the job; None if they did not
    round_zero      the tested model from which the rounds start; None if it was not tested
    rounds_planned  None before there are offers
    test            loss, accuracy and number of samples of the final test
    without_receipt names of clients whose receipt is made and whose nodes have not confirmed that they keep it
    refused_at      by stage: how many replies were refused
    strangers       nodes that were not admitted
    connections     addresses that were not admitted, and why
    rows, last_row  the ledger's last entries of this job, latest first, and the last one's number
    unreadable_rows how many entries of the job truthfl did not write
    """

    job: str
    running: bool
    address: str
    stage: str
    since: str | None
    deadline: str | None
    paused: bool
    ended: str | None
    participants: tuple[ParticipantStatus, ...]
    rounds: tuple[RoundPoint, ...]
    round_zero: RoundPoint | None
    rounds_planned: int | None
    reports_missing: int
    waits: RoundWaits | None
    round_times: RoundTimes
    test: dict[str, Any] | None
    without_receipt: tuple[str, ...]
    money: MoneyStatus | None
    plan: PlanNumbers | None
    refused_at: dict[str, int]
    strangers: tuple[RefusedReply, ...]
    connections: tuple[RefusedReply, ...]
    rows: tuple[LedgerRow, ...]
    last_row: int
    unreadable_rows: int

    @property
    def is_over(self) -> bool:
        return self.stage == OVER


class StatusReader:
    """Reads the status of one job repeatedly; each time it reads only new entries."""

    def __init__(self, ledger: Ledger, job: str) -> None:
        self.ledger = ledger
        self.job = JobState(job)
        self._known: tuple[object, JobStatus] | None = None

    def read(self, live: LiveStatus | None = None) -> JobStatus:
        """The status now; the same object as before if nothing has changed."""
        for entry in self.ledger.entries(self.job.name, after=self.job.last):
            self.job.add(entry)
        own = live if live is not None and live.job == self.job.name else None
        running = own is not None and own.is_current
        unsigned = self.ledger.unsigned(self.job.name)
        seen = (self.job.last, unsigned, running, None if own is None else replace(own, at=""))
        if self._known is None or self._known[0] != seen:
            self._known = (seen, status_of(self.job, own, unsigned, running=running))
        return self._known[1]


def status_of(job: JobState, live: LiveStatus | None, unsigned: int, *, running: bool) -> JobStatus:
    """The status from the ledger and the server's live status; `unsigned`: rows that the operator did not sign."""
    stage, since = recorded_stage(job)
    if running and live is not None and stage != OVER:
        stage, since = plain(live.stage), live.stage_since
    running = running and stage != OVER
    here, commanded = live if running else None, job.commands.state
    unknown = sum(client.version > 0 and client.numbers is None for client in job.clients.values())
    return JobStatus(
        job=plain(job.name),
        running=running,
        address="" if here is None else plain(here.address),
        stage=stage,
        since=since,
        deadline=None if here is None else here.deadline,
        paused=(commanded.paused if here is None else here.paused) and stage != OVER,
        ended=None if commanded.ended is None else plain(commanded.ended.why or "no reason given"),
        participants=participants_of(job, live, running=running),
        rounds=tuple(job.points),
        round_zero=job.round_zero,
        rounds_planned=None if job.terms is None else job.terms.rounds,
        reports_missing=job.reports_missing,
        waits=None if here is None or here.waits is None else _plain_waits(here.waits),
        round_times=times_of(live),
        test=job.test,
        without_receipt=tuple(plain(one.name) for one in job.clients.values() if one.receipt and not one.has_receipt),
        money=money_of(job),
        plan=plan_of(job),
        refused_at=dict(job.refused_at),
        strangers=tuple(reversed(job.strangers)),
        connections=_refused_connections(live),
        rows=tuple(ledger_row(entry, job.terms, readable=readable) for entry, readable in reversed(job.rows)),
        last_row=job.last,
        unreadable_rows=job.unreadable + unknown + unsigned,
    )


def recorded_stage(job: JobState) -> tuple[str, str | None]:
    """The stage that the ledger's entries have reached, and since when."""
    in_force, at = job.in_force, job.last_at
    agreed = bool(in_force) and all(client.answer == ACCEPTED for client in in_force)
    ended = job.commands.state.ended
    if ended is not None and not agreed:  # there is nothing to settle
        return OVER, ended.at
    if in_force and all(client.receipt for client in in_force):
        return OVER, at["receipt"]
    if job.terms is not None and "round" in at and len(job.points) >= job.terms.rounds:
        return TESTING, at["round"]
    for kind, stage in (
        ("ended", TESTING),
        ("test", TESTING),
        ("final", TESTING),
        ("start", TRAINING),
        ("hold", DECIDING),
        ("commitment", AUDITIONING),
    ):
        if kind in at:
            return stage, job.first_at[kind]
    if agreed:
        return LABELING, at["answer"]
    if "offer" in at:
        return OFFERING, at["offer"]
    return ENROLLING, at.get("job")


def _plain_waits(waits: RoundWaits) -> RoundWaits:
    return replace(waits, names=tuple(map(plain, waits.names)), at=plain(waits.at), until=plain(waits.until))


def _refused_connections(live: LiveStatus | None) -> tuple[RefusedReply, ...]:
    refused = () if live is None else tuple(reversed(live.refused_connections))
    return tuple(RefusedReply(one.at, "connection", None, plain(one.address), plain(one.reason)) for one in refused)
