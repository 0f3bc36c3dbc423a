"""The state of one job, folded from its rows in the ledger one by one.

Server, settlement, checks, receipts, status, page and metrics all read this one. A row that cannot be read is counted
and passed over, so that it ends no status; a `JobView` raises its error where pay depends on it. What a row costs does
not grow with the job, and of refusals and rows only the last ones are kept.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from truthfl.errors import TruthflError
from truthfl.ledger.commands import ACCEPT, INVITE, REFUSE, REMOVE, Command, CommandLog
from truthfl.ledger.entry import Entry
from truthfl.ledger.terms import JobTerms, Offer, job_terms_from, offer_from
from truthfl.texts import plain

ROWS_KEPT = 40
REFUSALS_KEPT = 3  # of one client
STRANGERS_KEPT = 20  # refusals of nodes that are no client
ACCEPTED, DECLINED, NO_ANSWER = "accepted", "declined", "no answer in time"
UNREADABLE = (TruthflError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
FIELDS: Mapping[str, tuple[str, ...]] = {  # by kind: what a row must have for its line of text alone
    "enrolment": ("name",),
    "audition": ("client",),
    "commitment": ("client",),
    "start": ("start", "round"),
    "ended": ("rounds",),
    "final": ("document",),
    "settlement": ("client", "delivered", "asked"),
    "receipt": ("client",),
    "acknowledgement": ("client",),
    "payment": ("currency",),
}


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
class PlanNumbers:
    """The numbers of a plan. Contract, labels and asked are those of the offers in force, which `plan_of` fills in.

    solo_labels, solo_loss   learning curve: loss of models trained alone, by number of labels; empty without audition
    labels                   asked of all clients together
    asked                    (labels, batch size, number of clients): how many clients are asked the same
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
class OfferNumbers:
    """The main numbers of one client's offer. Money is in the job's currency.

    most   the pay cap; without a cap in the contract, the pay for a perfect model, with a loss of 0
    worth  what this client's work adds to that of the others; None if the plan does not know it
    """

    client: str
    labels: int
    batch_size: int
    cost: float
    expected_pay: float
    most: float
    worth: float | None = None


def numbers_of(offer: Offer, worth: float | None = None) -> OfferNumbers:
    """The offer in a few numbers; `worth` as in `OfferNumbers`."""
    most = offer.contract.pay_range(0.0, offer.job.expected_loss)[1]
    return OfferNumbers(
        client=offer.client.name,
        labels=offer.client.samples,
        batch_size=offer.client.batch_size,
        cost=offer.cost,
        expected_pay=offer.expected_pay,
        most=float(most[0]),
        worth=worth,
    )


@dataclass
class ClientState:
    """What the rows say about one client.

    invited_until   when the client's last invitation expires; None if there is no unused one
    admitted        whether the client used their last invitation
    samples         that the client enrolled with; None before
    offers, answers by version: the client's offers, and ACCEPTED, DECLINED or NO_ANSWER
    version         of the last offer; 0 before
    left_out        why the last plan does not ask the client
    held            why the operator decides on the client's solo model
    audition        solo_loss, passed and reason; None before
    asked_listed    rounds whose row lists the client among those asked
    missing         rounds in which the client's report was not taken
    settled         pay in minor units
    """

    name: str
    invited_until: str | None = None
    admitted: bool = False
    samples: int | None = None
    offers: dict[int, Offer] = field(default_factory=dict)
    answers: dict[int, str] = field(default_factory=dict)
    version: int = 0
    left_out: str | None = None
    committed: bool = False
    held: str | None = None
    audition: dict[str, Any] | None = None
    asked_listed: int = 0
    missing: int = 0
    refused: int = 0
    refusals: deque[RefusedReply] = field(default_factory=lambda: deque(maxlen=REFUSALS_KEPT))
    settled: int | None = None
    payment: dict[str, Any] | None = None
    receipt: bool = False
    has_receipt: bool = False

    @cached_property
    def numbers(self) -> OfferNumbers | None:
        """The numbers of the last offer; None before, and if its contract is not known here."""
        try:
            return numbers_of(self.offers[self.version]) if self.version else None
        except UNREADABLE:
            return None

    @property
    def answer(self) -> str | None:
        """The answer to the last offer; None before."""
        return self.answers.get(self.version)

    @property
    def passed(self) -> bool | None:
        """Whether the client passed the audition; None before or without one."""
        return None if self.audition is None else self.audition["passed"]

    @property
    def takes_part(self) -> bool:
        """Whether the client accepted and was not stopped at the audition."""
        return self.answer == ACCEPTED and self.passed is not False


class JobState:
    """What the rows of one job amount to. `add` folds in the next row.

    last            sequence number of the last row
    clients         by name; the job's first, then others who have rows
    first_at        by kind: the time of the first row
    last_at         by kind: the time of the last
    terms, plan, worth  of the last plan: the job's terms, its numbers, and what the work of each client is worth
    terms_of        by version: the terms in the plan
    version         of the last offers; 0 before
    commands        the operator's
    invitations     by name and digest of the code: the first row, and its command
    removals        by name: the row of the first command
    decisions       by name: commands about the client's solo model
    all_asked       rounds in which all participants were asked
    points          the rounds
    round_zero      the model from which they start; None if it was not tested
    refused_at      by stage: how many replies were refused
    strangers       the last refusals of nodes that belong to no client of the job
    test            loss, accuracy and number of samples; None before
    rows            the last ones, each with whether it could be read
    unreadable      how many rows could not be read, as truthfl did not write them
    errors          by kind: the error of the first of them
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.last = self.unreadable = 0
        self.clients: dict[str, ClientState] = {}
        self.first_at: dict[str, str] = {}
        self.last_at: dict[str, str] = {}
        self.terms: JobTerms | None = None
        self.terms_of: dict[int, JobTerms] = {}
        self.plan: PlanNumbers | None = None
        self.worth: tuple[float, ...] = ()
        self.version = 0
        self.commands = CommandLog(name, "")
        self.invitations: dict[tuple[str, str], tuple[Entry, Command]] = {}
        self.removals: dict[str, Entry] = {}
        self.decisions: dict[str, list[tuple[Entry, Command]]] = {}
        self.all_asked = self.reports_missing = 0
        self.points: list[RoundPoint] = []
        self.round_zero: RoundPoint | None = None
        self.refused_at: Counter[str] = Counter()
        self.strangers: deque[RefusedReply] = deque(maxlen=STRANGERS_KEPT)
        self.test: dict[str, float | None] | None = None
        self.rows: deque[tuple[Entry, bool]] = deque(maxlen=ROWS_KEPT)
        self.errors: dict[str, Exception] = {}
        self._in_force: list[ClientState] | None = None

    def add(self, entry: Entry) -> None:
        """Fold in the next row."""
        readable = True
        try:
            document = entry.document
            for name in FIELDS.get(entry.kind, ()):
                document[name]
            fold = getattr(self, f"_add_{entry.kind}", None)
            if fold is not None:
                fold(entry, document)
        except UNREADABLE as error:
            readable = False
            self.unreadable += 1
            self.errors.setdefault(entry.kind, error)
        self.last = max(self.last, entry.sequence)
        self.first_at.setdefault(entry.kind, entry.at)
        self.last_at[entry.kind] = entry.at
        self.rows.append((entry, readable))

    @property
    def in_force(self) -> Sequence[ClientState]:
        """The clients with an offer of the last version, in its order."""
        if self._in_force is None:
            found = [one for one in self.clients.values() if 0 < one.version == self.version]
            self._in_force = sorted(found, key=lambda one: one.offers[one.version].client.index)
        return self._in_force

    def client(self, name: str) -> ClientState:
        """The client of this name; a new one if the job's opening does not list them."""
        if not isinstance(name, str):
            raise TypeError
        return self.clients.setdefault(name, ClientState(name))

    def rounds_of(self, client: ClientState) -> tuple[int, int]:
        """The number of rounds in which the client was asked for a report, and the number of reports taken."""
        taking_part = client.version == self.version and client.takes_part
        asked = client.asked_listed + (self.all_asked if taking_part else 0)
        return asked, max(asked - client.missing, 0)

    def _add_job(self, _: Entry, document: dict[str, Any]) -> None:
        self.commands.operator_key = str(document["operator_key"])
        for name in document["job"]["clients"]["name"]:
            self.client(name)

    def _add_command(self, entry: Entry, _: dict[str, Any]) -> None:
        if self.commands.add(entry) is not None:
            return
        command = self.commands.given[-1][1]
        fields = command.fields
        if command.kind == INVITE:
            self.invitations.setdefault((fields["name"], fields["code_digest"]), (entry, command))
            if fields["name"] in self.clients:
                client = self.clients[fields["name"]]
                client.invited_until, client.admitted = fields["expires"], False
        elif command.kind == REMOVE:
            self.removals.setdefault(fields["client"], entry)
        elif command.kind in (ACCEPT, REFUSE):
            self.decisions.setdefault(fields["client"], []).append((entry, command))

    def _add_admission(self, _: Entry, document: dict[str, Any]) -> None:
        client = self.client(document["client"])
        client.invited_until, client.admitted = None, True

    def _add_enrolment(self, entry: Entry, document: dict[str, Any]) -> None:
        self.client(entry.key).samples = int(document["samples"])

    def _add_plan(self, entry: Entry, document: dict[str, Any]) -> None:
        version = int(entry.key)
        if "terms" in document:
            self.terms = self.terms_of[version] = job_terms_from(document["terms"])
        step_size, loss, error = (number(document[name]) for name in ("step_size", "expected_loss", "loss_error"))
        solo = document.get("audition", {}).get("solo", {"labels": (), "loss": ()})
        labels, losses = (tuple(map(number, solo[name])) for name in ("labels", "loss"))
        self.worth = tuple(map(number, document.get("worth", ())))
        of_all = number_or_none(document.get("worth_of_all"))
        self.plan = PlanNumbers(version, "", step_size, loss, error, labels, losses, 0, (), of_all)

    def _add_offer(self, _: Entry, document: dict[str, Any]) -> None:
        offer = offer_from(document)
        client, version = self.client(offer.client.name), offer.job.version
        self.terms, self.version = self.terms or offer.job, max(self.version, version)
        client.offers[version] = offer
        client.version, client.left_out = version, None
        client.__dict__.pop("numbers", None)
        self._in_force = None

    def _add_answer(self, entry: Entry, document: dict[str, Any]) -> None:
        version, _, name = entry.key.partition("/")
        answer = document["document"]
        answer["client"]
        self.client(name).answers[int(version)] = ACCEPTED if answer["kind"] == "acceptance" else DECLINED

    def _add_commitment(self, entry: Entry, _: dict[str, Any]) -> None:
        self.client(entry.key).committed = True

    def _add_hold(self, entry: Entry, document: dict[str, Any]) -> None:
        if document["known"] is None:
            loss = number(document["solo_loss"])
            self.client(entry.key).held = f"a solo loss of {loss:.4f} is too good; accept or refuse it"

    def _add_audition(self, entry: Entry, document: dict[str, Any]) -> None:
        result = {"solo_loss": number_or_none(document["solo_loss"]), "passed": document["passed"] is True}
        self.client(entry.key).audition = result | {"reason": plain(document["reason"] or "")}

    def _add_start(self, _: Entry, document: dict[str, Any]) -> None:
        if "loss" in document:
            loss, accuracy = (number_or_none(document[name]) for name in ("loss", "accuracy"))
            self.round_zero = RoundPoint(0, loss, accuracy, 0)

    def _add_round(self, _: Entry, document: dict[str, Any]) -> None:
        loss, accuracy = (number_or_none(document.get(name)) for name in ("loss", "accuracy"))
        asked = None if "asked" not in document else [self.client(name) for name in document["asked"]]
        missing = [self.client(name) for name in document["missing"]]
        self.points.append(RoundPoint(int(document["round"]), loss, accuracy, len(missing)))
        self.all_asked += asked is None
        for client in asked or ():
            client.asked_listed += 1
        for client in missing:
            client.missing += 1
        self.reports_missing += len(missing)

    def _add_rejection(self, entry: Entry, document: dict[str, Any]) -> None:
        name, stage, reason = document["client"], str(document["stage"]), plain(document["reason"])
        if stage == "plan":
            self.client(name).left_out = reason
            return
        count = refusals_since_the_row_before(int(document.get("count", 1)))
        node = "somebody" if document["node"] is None else f"node {document['node']}"
        round_ = None if document["round"] is None else int(document["round"])
        refusal = RefusedReply(entry.at, plain(stage), round_, plain(node if name is None else name), reason)
        if name is None:
            self.strangers.append(refusal)
        else:
            client = self.client(name)
            client.refused += count
            client.refusals.append(refusal)
            if stage == "offer" and reason == NO_ANSWER:
                client.answers[client.version] = NO_ANSWER
        self.refused_at[plain(stage)] += count

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


def number(value: object) -> float:
    """The value as a number; anything else is an error."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError
    return float(value)


def number_or_none(value: object) -> float | None:
    """The value as a number; None stays, and anything else is an error."""
    return None if value is None else number(value)


def refusals_since_the_row_before(count: int) -> int:
    """How many refusals of one cause a row with this count stands for: the 1st, 10th, 100th … has one."""
    return count - count // 10 if count >= 10 else 1
