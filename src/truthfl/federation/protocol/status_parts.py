"""Money, plan and round times of a job's status."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from truthfl.federation.protocol.job_tally import ACCEPTED, ClientTally, JobTally
from truthfl.federation.protocol.live_status import LiveStatus
from truthfl.texts import plain


@dataclass(frozen=True)
class MoneyStatus:
    """What the job may cost and has cost, in its currency, over the offers that are in force.

    minor_units   how many of them are one unit of the currency
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
class PlanStatus:
    """The plan behind the offers in force.

    solo_labels, solo_loss   the learning curve: loss of models trained alone on so many labels; empty without audition
    labels                   asked of all clients together
    asked                    (labels, batch size, number of clients): who is asked the same, counted
    worth_of_all             what all work together is worth to the operator; None if the plan does not say
    """

    version: int
    contract: str
    step_size: float
    expected_loss: float
    loss_error: float
    solo_labels: tuple[float, ...]
    solo_loss: tuple[float, ...]
    labels: int
    asked: tuple[tuple[int, int, int], ...]
    worth_of_all: float | None


@dataclass(frozen=True)
class RoundTimes:
    """How long rounds took since the server started: how many, all together, and the last ones one by one."""

    count: int
    seconds: float
    last: tuple[float, ...]


def money_of(tally: JobTally) -> MoneyStatus | None:
    """The job's money; None before there are offers."""
    terms, open_clients = tally.terms, _open_clients(tally)
    if terms is None:
        return None
    units = terms.minor_units
    offers = [client.offer for client in open_clients if client.offer is not None]
    settlements = [client.settled for client in tally.clients.values() if client.settled is not None]
    by_state = dict.fromkeys(("due", "sent", "confirmed", "failed"), 0)
    for client in tally.clients.values():
        if client.payment is not None and client.payment["state"] in by_state:
            by_state[client.payment["state"]] += client.payment["amount"]
    return MoneyStatus(
        currency=plain(terms.currency),
        minor_units=units,
        has_cap=tally.has_cap,
        cost=sum(offer.cost for offer in offers),
        expected=sum(offer.expected_pay for offer in offers),
        committed=sum(one.offer.expected_pay for one in open_clients if one.offer and one.answer == ACCEPTED),
        most=sum(offer.most for offer in offers),
        settled=sum(settlements) / units if settlements else None,
        due=by_state["due"] / units,
        sent=by_state["sent"] / units,
        paid=by_state["confirmed"] / units,
        failed=by_state["failed"] / units,
    )


def plan_of(tally: JobTally) -> PlanStatus | None:
    """The last plan with its offers; None before there is one."""
    plan, terms = tally.plan, tally.terms
    if plan is None or terms is None:
        return None
    pairs = sorted((one.offer.labels, one.offer.batch_size) for one in tally.in_force if one.offer is not None)
    return PlanStatus(
        version=plan.version,
        contract=plain(terms.contract),
        step_size=plan.step_size,
        expected_loss=plan.expected_loss,
        loss_error=plan.loss_error,
        solo_labels=plan.solo_labels,
        solo_loss=plan.solo_loss,
        labels=sum(labels for labels, _ in pairs),
        asked=tuple((*pair, len(list(same))) for pair, same in groupby(pairs)),
        worth_of_all=plan.worth_of_all,
    )


def worth_by_client(tally: JobTally) -> dict[str, float]:
    """By name: what the plan measured each client's work to be worth; empty in ledgers that do not say it."""
    worth = () if tally.plan is None else tally.plan.worth
    names = [client.name for client in tally.in_force]
    return dict(zip(names, worth, strict=True)) if len(worth) == len(names) else {}


def times_of(live: LiveStatus | None) -> RoundTimes:
    """The times of rounds that the server wrote down."""
    if live is None:
        return RoundTimes(0, 0.0, ())
    return RoundTimes(live.rounds_timed, live.seconds_in_rounds, tuple(live.round_seconds))


def _open_clients(tally: JobTally) -> list[ClientTally]:
    """Those whose offers are open or accepted."""
    return [client for client in tally.in_force if client.answer in (None, ACCEPTED)]
