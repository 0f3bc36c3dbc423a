"""The ledger's content on one job, updated entry by entry, with one line of text per entry.

A `JobView` is made of all entries at once. This module serves readers who look every second: the cost depends only on
the new entries. Entries that truthfl did not write are counted and skipped.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from truthfl.errors import TruthflError
from truthfl.federation.operator.approval import PlannedOffer, planned_offer
from truthfl.federation.operator.live_status import RoundWaits
from truthfl.federation.protocol.recorder import new_of_cause
from truthfl.ledger.commands import INVITE, Command, CommandState, next_fault, read_command, state_after
from truthfl.ledger.entry import Entry
from truthfl.ledger.evidence import amount_text, minor_money
from truthfl.ledger.job_view import known_model
from truthfl.ledger.terms import JobTerms, job_terms_from, offer_from
from truthfl.texts import plain

NAMES_TOLD = 5  # named in a sentence


def _missing(names: list[str]) -> str:
    """How many of the clients asked are missing in a round."""
    return f"{len(names)} missing" if names else "all reports"


def waits_words(waits: RoundWaits) -> str:
    """The clients for whom a round waits."""
    names, more = waits.names[:NAMES_TOLD], len(waits.names) - NAMES_TOLD
    return f"round {waits.round:,} waits for {', '.join(names)}{f' and {more:,} more' if more > 0 else ''}"


def describe_command(document: Mapping[str, Any]) -> str:
    """One line about a command of the operator's, which may not be well-formed."""
    inner = document.get("document")
    told = inner if isinstance(inner, Mapping) else {}
    about = " ".join(str(told[name]) for name in ("client", "stage", "name") if name in told)
    until = f" until {told['until']}" if "until" in told else ""
    why = f": {told['why']}" if told.get("why") else ""
    return f"command of {told.get('by')}: {told.get('kind')}{f' {about}' if about else ''}{until}{why}"


def describe_hold(document: Mapping[str, Any]) -> str:
    """One line about a solo model that is held."""
    name, known = document["client"], document["known"]
    if known is not None:
        like = f"{known_model(known)} (likeness {known['likeness']:.2f})"
        return f"{name}: the solo model is nearly {like}; it is not paid"
    better = f"{name}: the solo loss of {document['solo_loss']:.4f} is better than honest ones are once in 10,000 times"
    return f"{better}; truthfl accept {name}, or truthfl refuse {name}"


def describe_entry(entry: Entry, terms: JobTerms | None) -> str | None:
    """Return one line about this entry, or None for kinds that are not shown.

    terms   the job's terms, which define the minor unit; None before there are any
    """
    document = entry.document
    if entry.kind == "enrolment":
        return f"{document['name']} is there with {document['samples']} samples"
    if entry.kind == "plan":
        worth = document.get("worth")
        of_work = f", each client's work worth {min(worth):,.0f} to {max(worth):,.0f}" if worth else ""
        return f"planned: step size {document['step_size']:.3g}, expected loss {document['expected_loss']:.4f}{of_work}"
    if entry.kind == "offer":
        offer = offer_from(document)
        return (
            f"offer to {offer.client.name}: {offer.client.samples} labels, batches of {offer.client.batch_size}, "
            f"expected pay {amount_text(offer.expected_pay, offer.job.minor_units)} {offer.job.currency}"
        )
    if entry.kind == "answer":
        answer = document["document"]
        return f"{answer['client']} {'accepts' if answer['kind'] == 'acceptance' else 'declines'}"
    if entry.kind == "audition":
        loss = "no solo model" if document["solo_loss"] is None else f"solo loss {document['solo_loss']:.4f}"
        stopped = "" if document["passed"] else "; they take no part in the rounds"
        return f"{document['client']}: {loss}{stopped}"
    if entry.kind == "hold":
        return describe_hold(document)
    if entry.kind == "round":
        loss = f", loss {document['loss']:.4f}, accuracy {document['accuracy']:.1%}" if "loss" in document else ""
        skipped = f"; the model stays as it was: {document['refused']}" if document.get("refused") else ""
        return f"round {document['round']}: {_missing(document['missing'])}{loss}{skipped}"
    if entry.kind == "admission":
        return f"{document['client']} was admitted by invitation"
    if entry.kind == "command":
        return describe_command(document)
    if entry.kind == "ended":
        lost = f"; the model is lost, for round {document['lost']} could not be repeated" if "lost" in document else ""
        return f"the operator ended the job after {document['rounds']} rounds{lost}"
    if entry.kind == "rejection":
        stage = f"round {document['round']}" if document["round"] is not None else document["stage"]
        who = document["client"] or document["node"]
        return f"{stage}{'' if who is None else f': {who}'} refused: {document['reason']}"
    if entry.kind == "test":
        accuracy = "" if document["accuracy"] is None else f", accuracy {document['accuracy']:.1%}"
        return f"test loss {document['loss']:.4f}{accuracy}"
    if entry.kind == "settlement":
        rounds = f"{document['delivered']} of {document['asked']} rounds"
        units, currency = (1, "") if terms is None else (terms.minor_units, terms.currency)
        return f"{document['client']} is paid {minor_money(document['pay'], units, currency).strip()} for {rounds}"
    return None


def describe_row(entry: Entry, terms: JobTerms | None) -> str:
    """Return one line about this entry, whatever its kind; `terms` as in `describe_entry`."""
    return describe_entry(entry, terms) or _describe_other(entry, terms)


def _describe_other(entry: Entry, terms: JobTerms | None) -> str:
    """One line about an entry of a kind that the terminal does not show."""
    document = entry.document
    if entry.kind == "job":
        return f"the job begins, with {len(document['job']['clients']['name'])} clients"
    if entry.kind == "commitment":
        return f"{document['client']} has trained alone and committed to the model"
    if entry.kind == "start":
        return f"training {'begins' if document['start'] == 0 else 'goes on'} at round {document['round']}"
    if entry.kind == "final":
        return f"{document['document']['client']} signs that the final model's digest arrived"
    if entry.kind == "receipt":
        return f"the receipt of {document['client']} is signed"
    if entry.kind == "acknowledgement":
        return f"{document['client']} has the receipt"
    if entry.kind == "payment":
        units = 1 if terms is None else terms.minor_units
        amount = minor_money(document["amount"], units, document["currency"])
        return f"payment of {document['client']}: {amount}, {document['state']}"
    return f"{entry.kind} {entry.key}"


ROWS_KEPT = 40
REFUSALS_KEPT = 3  # of one client
STRANGERS_KEPT = 20  # refusals of nodes that are no client
ACCEPTED, DECLINED, NO_ANSWER = "accepted", "declined", "no answer in time"


def number_or_none(value: object) -> float | None:
    """The value as a number; None stays, and anything else is an error."""
    return None if value is None else number(value)


def number(value: object) -> float:
    """The value as a number; anything else is an error."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError
    return float(value)


@dataclass(frozen=True)
class RefusedReply:
    """A refused reply: when, in which stage and round, from whom, and why."""

    at: str
    stage: str
    round: int | None
    who: str
    reason: str


@dataclass(frozen=True)
class RoundPoint:
    """One round: loss and accuracy of the model after it, if the server measured them, and how many were missing."""

    round: int
    loss: float | None
    accuracy: float | None
    missing: int


@dataclass(frozen=True)
class LedgerRow:
    """A row of the ledger in words."""

    sequence: int
    at: str
    kind: str
    words: str


@dataclass(frozen=True)
class TalliedPlan:
    """The numbers of a plan.

    worth          of the work of each client whom it asks, in their order, beside the others' work; empty if not known
    worth_of_all   of all work together; None if not known
    """

    version: int
    step_size: float
    expected_loss: float
    loss_error: float
    worth: tuple[float, ...]
    solo_labels: tuple[float, ...]
    solo_loss: tuple[float, ...]
    worth_of_all: float | None


@dataclass
class ClientTally:
    """The entries about one client.

    invited_until   when the client's last invitation expires; None if there is no unused one
    admitted        whether the client used their last invitation
    samples         that the client enrolled with; None before
    version, index  of the client's last offer, and their position in it
    answer          to the client's last offer: ACCEPTED, DECLINED or NO_ANSWER; None before
    left_out        why the plan does not ask the client
    asked_listed    rounds whose entry lists the client among those asked
    """

    name: str
    invited_until: str | None = None
    admitted: bool = False
    samples: int | None = None
    offer: PlannedOffer | None = None
    version: int = 0
    index: int = 0
    answer: str | None = None
    left_out: str | None = None
    committed: bool = False
    held: str | None = None  # why the operator decides on the client's solo model
    audition: dict[str, Any] | None = None  # solo_loss, passed, reason
    asked_listed: int = 0
    missing: int = 0
    refused: int = 0
    refusals: deque[RefusedReply] = field(default_factory=lambda: deque(maxlen=REFUSALS_KEPT))
    settled: int | None = None  # in minor units
    payment: dict[str, Any] | None = None
    receipt: bool = False
    has_receipt: bool = False

    @property
    def takes_part(self) -> bool:
        """Whether the client accepted and was not stopped at the audition."""
        stopped = self.audition is not None and not self.audition["passed"]
        return self.answer == ACCEPTED and not stopped


class JobTally:
    """The entries of one job, added one by one, in order.

    last            sequence number of the last entry
    first_at        by kind: the time of the first entry
    last_at         by kind: the time of the last
    all_asked       rounds in which all participants were asked
    refused_at      by stage: how many replies were refused
    strangers       the last refusals of nodes that belong to no client of the job
    rows            the last entries in words
    operator_key    whose commands count
    commands        what the operator's commands amount to
    unreadable      how many entries truthfl did not write
    """

    def __init__(self, job: str) -> None:
        self.job = job
        self.last = 0
        self.clients: dict[str, ClientTally] = {}
        self.first_at: dict[str, str] = {}
        self.last_at: dict[str, str] = {}
        self.terms: JobTerms | None = None
        self.plan: TalliedPlan | None = None
        self.has_cap = True
        self.version = 0
        self.all_asked = 0
        self.rounds: list[RoundPoint] = []
        self.reports_missing = 0
        self.refused_at: Counter[str] = Counter()
        self.strangers: deque[RefusedReply] = deque(maxlen=STRANGERS_KEPT)
        self.test: dict[str, Any] | None = None
        self.rows: deque[LedgerRow] = deque(maxlen=ROWS_KEPT)
        self.operator_key = ""
        self.commands = CommandState()
        self._given: list[Command] = []
        self.unreadable = self.unsigned = 0

    def add(self, entry: Entry) -> None:
        """Add the next entry."""
        self.last = max(self.last, entry.sequence)
        add_kind = getattr(self, f"_add_{entry.kind}", None)
        try:
            if add_kind is not None:
                add_kind(entry, entry.document)
            words = describe_row(entry, self.terms)
        except (TruthflError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            self.unreadable += 1
            words = "not written by truthfl; truthfl ledger check says more"
        self.first_at.setdefault(entry.kind, entry.at)
        self.last_at[entry.kind] = entry.at
        self.rows.append(LedgerRow(entry.sequence, entry.at, plain(entry.kind), plain(words)))

    @property
    def in_force(self) -> list[ClientTally]:
        """The clients with an offer of the last version, in its order."""
        return sorted(
            (one for one in self.clients.values() if 0 < one.version == self.version), key=lambda one: one.index
        )

    def client(self, name: str) -> ClientTally:
        """The client of this name; a new one if the job's opening does not list them."""
        if not isinstance(name, str):
            raise TypeError
        return self.clients.setdefault(name, ClientTally(name))

    def _add_job(self, _: Entry, document: dict[str, Any]) -> None:
        self.operator_key = str(document["operator_key"])
        for name in document["job"]["clients"]["name"]:
            self.client(name)

    def _add_enrolment(self, entry: Entry, document: dict[str, Any]) -> None:
        self.client(entry.key).samples = int(document["samples"])

    def _add_plan(self, entry: Entry, document: dict[str, Any]) -> None:
        step_size, loss, error = (number(document[name]) for name in ("step_size", "expected_loss", "loss_error"))
        solo = document.get("audition", {}).get("solo", {"labels": (), "loss": ()})
        worth, labels, losses = (
            tuple(map(number, values)) for values in (document.get("worth", ()), solo["labels"], solo["loss"])
        )
        of_all = number_or_none(document.get("worth_of_all"))
        self.plan = TalliedPlan(int(entry.key), step_size, loss, error, worth, labels, losses, of_all)
        if "terms" in document:
            self.terms = job_terms_from(document["terms"])

    def _add_offer(self, _: Entry, document: dict[str, Any]) -> None:
        offer = offer_from(document)
        self.terms = self.terms or offer.job
        self.version = max(self.version, offer.job.version)
        self.has_cap = offer.contract.has_cap
        client = self.client(offer.client.name)
        client.offer, client.version, client.index = planned_offer(offer), offer.job.version, offer.client.index
        client.answer = client.left_out = None

    def _add_answer(self, entry: Entry, document: dict[str, Any]) -> None:
        name = entry.key.partition("/")[2]
        self.client(name).answer = ACCEPTED if document["document"]["kind"] == "acceptance" else DECLINED

    def _add_commitment(self, entry: Entry, _: dict[str, Any]) -> None:
        self.client(entry.key).committed = True

    def _add_hold(self, entry: Entry, document: dict[str, Any]) -> None:
        if document["known"] is None:
            loss = number(document["solo_loss"])
            self.client(entry.key).held = f"a solo loss of {loss:.4f} is too good; accept or refuse it"

    def _add_audition(self, entry: Entry, document: dict[str, Any]) -> None:
        result = {"solo_loss": number_or_none(document["solo_loss"]), "passed": document["passed"] is True}
        self.client(entry.key).audition = result | {"reason": plain(document["reason"] or "")}

    def _add_round(self, _: Entry, document: dict[str, Any]) -> None:
        if "asked" in document:
            for name in document["asked"]:
                self.client(name).asked_listed += 1
        else:
            self.all_asked += 1
        missing = document["missing"]
        for name in missing:
            self.client(name).missing += 1
        self.reports_missing += len(missing)
        loss, accuracy = (number_or_none(document.get(name)) for name in ("loss", "accuracy"))
        self.rounds.append(RoundPoint(int(document["round"]), loss, accuracy, len(missing)))

    def _add_rejection(self, entry: Entry, document: dict[str, Any]) -> None:
        name, stage, reason = document["client"], str(document["stage"]), plain(document["reason"])
        if stage == "plan":
            self.client(name).left_out = reason
            return
        number = new_of_cause(int(document.get("count", 1)))
        self.refused_at[plain(stage)] += number
        node = "somebody" if document["node"] is None else f"node {document['node']}"
        who = plain(node if name is None else name)
        round_ = None if document["round"] is None else int(document["round"])
        refusal = RefusedReply(entry.at, plain(stage), round_, who, reason)
        if name is None:
            self.strangers.append(refusal)
            return
        client = self.client(name)
        client.refused += number
        client.refusals.append(refusal)
        if stage == "offer" and reason == NO_ANSWER:
            client.answer = NO_ANSWER

    def _add_command(self, _: Entry, document: dict[str, Any]) -> None:
        if next_fault(document, self.job, self.operator_key, self._given[-1] if self._given else None) is None:
            command = read_command(document)
            self._given.append(command)
            self.commands = state_after(self._given)
            if command.kind == INVITE and command.fields["name"] in self.clients:
                client = self.clients[command.fields["name"]]
                client.invited_until, client.admitted = command.fields["expires"], False

    def _add_admission(self, _: Entry, document: dict[str, Any]) -> None:
        client = self.client(document["client"])
        client.invited_until, client.admitted = None, True

    def _add_test(self, _: Entry, document: dict[str, Any]) -> None:
        self.test = {name: number_or_none(document[name]) for name in ("loss", "accuracy", "samples")}

    def _add_settlement(self, entry: Entry, document: dict[str, Any]) -> None:
        if type(document["pay"]) is not int:
            raise TypeError
        self.client(entry.key).settled = document["pay"]

    def _add_payment(self, _: Entry, document: dict[str, Any]) -> None:
        state = document["state"] if document["amount"] > 0 or document["state"] != "due" else "not due"
        self.client(document["client"]).payment = {"state": state, "amount": int(document["amount"])}

    def _add_receipt(self, entry: Entry, _: dict[str, Any]) -> None:
        self.client(entry.key).receipt = True

    def _add_acknowledgement(self, entry: Entry, _: dict[str, Any]) -> None:
        self.client(entry.key).has_receipt = True
