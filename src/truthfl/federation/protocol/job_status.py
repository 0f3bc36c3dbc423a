"""All that the operator wants to know of one job: from the ledger, and from the running server if there is one.

`StatusReader` is for those who look again and again: it reads new entries only. Every text in a status is plain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from truthfl.federation.protocol.job_tally import ACCEPTED, JobTally, LedgerRow, RefusedReply, RoundPoint
from truthfl.federation.protocol.live_status import (
    AUDITIONING,
    DECIDING,
    ENROLLING,
    LABELING,
    OFFERING,
    OVER,
    TESTING,
    TRAINING,
    LiveStatus,
    RoundWaits,
)
from truthfl.federation.protocol.participant_status import ParticipantStatus, participants_of
from truthfl.federation.protocol.status_parts import MoneyStatus, PlanStatus, RoundTimes, money_of, plan_of, times_of
from truthfl.ledger.book import Ledger
from truthfl.texts import plain


@dataclass(frozen=True)
class JobStatus:
    """One job, as it is now. Times are ISO 8601 in UTC.

    waits           for whom the round waits, once that takes longer than usual; None if for nobody
    running         whether a server runs this job
    address         HOST:PORT that participants use; "" unless it runs
    stage, since    which stage it is in, or was left in, and since when
    deadline        when the server stops waiting in this stage; None if it does not wait or does not run
    ended           why the operator ended the job; None unless she did
    rounds_planned  None before there are offers
    test            loss, accuracy and number of samples of the final test
    without_receipt names of those whose receipt is made and whose nodes have not said that they keep it
    refused_at      by stage: how many replies were not taken
    strangers       nodes that were not taken in
    connections     from which addresses nobody was let in, and why
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
    rounds_planned: int | None
    reports_missing: int
    waits: RoundWaits | None
    round_times: RoundTimes
    test: dict[str, Any] | None
    without_receipt: tuple[str, ...]
    money: MoneyStatus | None
    plan: PlanStatus | None
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
    """Reads the status of one job again and again; each time, the entries that were written since."""

    def __init__(self, ledger: Ledger, job: str) -> None:
        self.ledger = ledger
        self.tally = JobTally(job)
        self._known: tuple[object, JobStatus] | None = None

    def read(self, live: LiveStatus | None = None) -> JobStatus:
        """The status now; the same object as before if nothing has changed."""
        for entry in self.ledger.entries(self.tally.job, after=self.tally.last):
            self.tally.add(entry)
        own = live if live is not None and live.job == self.tally.job else None
        running = own is not None and own.is_current
        self.tally.unsigned = self.ledger.unsigned(self.tally.job)
        seen = (self.tally.last, self.tally.unsigned, running, None if own is None else replace(own, at=""))
        if self._known is None or self._known[0] != seen:
            self._known = (seen, status_of(self.tally, own, running=running))
        return self._known[1]


def status_of(tally: JobTally, live: LiveStatus | None, *, running: bool) -> JobStatus:
    """The status from these entries and the server's own."""
    stage, since = recorded_stage(tally)
    if running and live is not None and stage != OVER:
        stage, since = plain(live.stage), live.stage_since
    running = running and stage != OVER
    here = live if running else None
    return JobStatus(
        job=plain(tally.job),
        running=running,
        address="" if here is None else plain(here.address),
        stage=stage,
        since=since,
        deadline=None if here is None else here.deadline,
        paused=(tally.commands.paused if here is None else here.paused) and stage != OVER,
        ended=None if tally.commands.ended is None else plain(tally.commands.ended.why or "no reason given"),
        participants=participants_of(tally, live, running=running),
        rounds=tuple(tally.rounds),
        rounds_planned=None if tally.terms is None else tally.terms.rounds,
        reports_missing=tally.reports_missing,
        waits=None if here is None or here.waits is None else _plain_waits(here.waits),
        round_times=times_of(live),
        test=tally.test,
        without_receipt=tuple(plain(one.name) for one in tally.clients.values() if one.receipt and not one.has_receipt),
        money=money_of(tally),
        plan=plan_of(tally),
        refused_at=dict(tally.refused_at),
        strangers=tuple(reversed(tally.strangers)),
        connections=_refused_connections(live),
        rows=tuple(reversed(tally.rows)),
        last_row=tally.last,
        unreadable_rows=tally.unreadable + tally.unsigned,
    )


def recorded_stage(tally: JobTally) -> tuple[str, str | None]:
    """The stage that the ledger's entries have reached, and since when."""
    in_force, at = tally.in_force, tally.last_at
    agreed = bool(in_force) and all(client.answer == ACCEPTED for client in in_force)
    if tally.commands.ended is not None and not agreed:  # there is nothing to settle
        return OVER, tally.commands.ended.at
    if in_force and all(client.receipt for client in in_force):
        return OVER, at["receipt"]
    if tally.terms is not None and "round" in at and len(tally.rounds) >= tally.terms.rounds:
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
            return stage, tally.first_at[kind]
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
