"""Replies of participants: who is asked, how long the server waits, and which replies are taken.

Replies are not trusted. Of a report only the arrays are used, and weights come from the contract. Of an audition only
the commitment, the salt and the model that match it are used.

`Awaited` asks in the stages before training, `collect_reports` in a round. A restarted server repeats the question of
its last round, from the same model, and participants answer with the same bytes.

In a round the server waits for every connected participant. While there are too few reports to change the model it also
waits for absent ones, up to `round_seconds`. The operator is told for whom a round waits longer than usual. A connected
participant who stays silent is asked in fewer and fewer rounds until they answer, as long as the others are enough.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.federation.operator.live_status import TRAINING
from truthfl.federation.protocol.enrolment import REPLY_TIMEOUT, Roster
from truthfl.federation.protocol.job_control import StageClock
from truthfl.federation.protocol.messages import (
    DOCUMENT,
    MARK_LENGTH,
    MODEL,
    PARAMS,
    PARTICIPANT,
    ROUND,
    array_bytes_digest,
    has_code,
    query_message,
    reply_in,
)
from truthfl.flower_patches import CLIENT_APP_FAILED
from truthfl.learning.data.datasets import array_of_npy
from truthfl.learning.models.model import Params
from truthfl.learning.solo import solo_length
from truthfl.learning.training.aggregation import MEAN, ReportRule
from truthfl.ledger.book import Ledger
from truthfl.ledger.canonical import SECRET_BYTES, audition_commitment
from truthfl.ledger.commands import time_text
from truthfl.ledger.entry import Item
from truthfl.ledger.terms import NOT_CONNECTED, NOT_IN_TIME, OWN, Agreement, JobTerms, Offer
from truthfl.texts import plain

Rejection = tuple[str | None, int | None, str]
"""Client, node, reason; the client is None if the node belongs to no client of the contract."""


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """The model after a round, the names of clients whose reports were taken, and the rejections.

    marks    by name: the mark (`report_mark`) of each report that arrived
    refused  why the round, or a part of it, did not change the model though reports were taken; None if it did
    """

    params: Params
    taken: list[str]
    rejected: list[Rejection]
    refused: str | None = None
    marks: Mapping[str, str] = field(default_factory=dict)


def missing_reports(
    node_of: Mapping[str, int | None], taken: Collection[str], rejected: list[Rejection]
) -> list[Rejection]:
    """A rejection for each client who sent no reply."""
    replied = {client for client, _, _ in rejected} | set(taken)
    return [
        (client, node, NOT_CONNECTED if node is None else NOT_IN_TIME)
        for client, node in node_of.items()
        if client not in replied
    ]


def rejection_item(job: str, round_: int, rejection: Rejection) -> Item:
    """The ledger item for a rejected report."""
    client, node, reason = rejection
    key = f"round/{round_}/{client or node}/{'again' if reason.startswith('duplicated') else 'first'}"
    document = {"stage": "round", "round": round_, "client": client, "reason": reason}
    return Item(job, "rejection", key, document | {"node": None if node is None else str(node)})


@dataclass(frozen=True)
class RoundCall:
    """One round as the server asks for it.

    round      counted from 0
    unchanged  the number of rounds directly before this one after which the model was still the same
    changed    the number of all earlier rounds that changed the model
    """

    round: int
    unchanged: int = 0
    changed: int = 0

    def fields(self, offer: Offer) -> dict[str, str | int]:
        """The fields of the training message to the client with this offer."""
        return {"offer": offer.hash, "round": self.round, "unchanged": self.unchanged, "changed": self.changed}

    def next(self, *, changed: bool) -> RoundCall:
        """The call of the next round; `changed`: whether this one changed the model."""
        return RoundCall(self.round + 1, 0 if changed else self.unchanged + 1, self.changed + int(changed))


def begin_rounds(
    ledger: Ledger, job: str, finished: int, model: str, tested: Callable[[], tuple[float, float]] | None = None
) -> RoundCall:
    """Record that the server begins or resumes training after these finished rounds; return its first round.

    model   the digest of the model after them
    tested  returns loss and accuracy of a first model that is worth recording; called only at the first start
    """
    starts = len(ledger.entries(job, "start"))
    document: dict[str, object] = {"start": starts, "round": finished + 1, "model": model}
    if starts == finished == 0 and tested is not None:
        document["loss"], document["accuracy"] = tested()
    ledger.append(job, "start", str(starts), document)
    rows = {entry.document["round"]: entry.document for entry in ledger.entries(job, "round")}
    changed = [
        number
        for number in range(1, finished + 1)
        if number not in rows or rows[number]["model"] != rows[number].get("previous")
    ]
    return RoundCall(finished, finished - max(changed, default=0), len(changed))


def round_document(
    call: RoundCall,
    taking_part: Agreement,
    offers: tuple[Offer, ...],
    taken: Collection[str],
    models: tuple[str, str],
    marks: Mapping[str, str],
) -> dict[str, object]:
    """The ledger's document of a round.

    offers  of the clients who were asked
    taken   the names of those whose reports were taken
    models  digests of the model from which the round started, and of the one after it
    marks   by name: the mark of each report (`report_mark`); kept for rounds that changed the model
    """
    delivered = frozenset(taken)
    missing = [offer.client.name for offer in offers if offer.client.name not in delivered]
    document: dict[str, object] = {"round": call.round + 1, "missing": missing}
    document |= {"previous": models[0], "model": models[1]} | asked_field(taking_part, offers)
    if models[0] != models[1]:
        document["reports"] = "".join(marks[name] for name in names_of(offers) if name in delivered)
    return document


def marks_in(row: Mapping[str, Any], offers: tuple[Offer, ...]) -> dict[str, str]:
    """By name: the marks of the reports that were taken, from the document of a round that changed the model."""
    names, marks = [name for name in names_of(offers) if name not in row["missing"]], row["reports"]
    return {name: marks[at * MARK_LENGTH : (at + 1) * MARK_LENGTH] for at, name in enumerate(names)}


def names_of(offers: tuple[Offer, ...]) -> list[str]:
    return [offer.client.name for offer in offers]


def asked_field(taking_part: Agreement, offers: tuple[Offer, ...]) -> dict[str, object]:
    """The field `asked` of a round's document: the names of the clients asked; no field if all participants were."""
    return {} if len(offers) == len(taking_part.offers) else {"asked": [offer.client.name for offer in offers]}


def report_rule(terms: JobTerms, own: str = MEAN) -> ReportRule:
    """The rule of a job; `own` names the operator's custom strategy, if there is one."""
    bounds = tuple(terms.bound_of_round(round_) for round_ in range(terms.rounds)) if terms.report_bounds else ()
    return ReportRule(known_aggregation(terms, own), bounds, terms.masked, terms.rescales)


def known_aggregation(terms: JobTerms, own: str) -> str:
    """How a job's reports are combined; terms say "own" for a custom strategy, which only the operator can name."""
    return own if terms.aggregation == OWN else terms.aggregation


AnyArray = NDArray[Any]
Arrays = Mapping[str, AnyArray]

LARGEST_NUMBER = 1e6
HEADER_BYTES = 256


def report_or_reason(
    reply: Message,
    common: Arrays,
    asked: Mapping[str, str | int],
    *,
    bound: float = 0.0,
    code_key: bytes | None = None,
) -> dict[str, AnyArray] | str:
    """Return the model in a reply, or the reason why the reply is rejected.

    common    the model as it was sent to the clients
    asked     the training message's fields on the round; offer and round must come back
    bound     the largest length (L2 norm) of a report's change; 0 for none
    code_key  of the code that the reply must have; None if the offer has no agreement key
    """
    if reply.has_error():
        return error_in(reply)
    content = reply.content
    if set(content.keys()) != {MODEL, ROUND}:
        return plain(f"its records are {', '.join(sorted(map(repr, content.keys()))) or 'none'}")
    assignment, arrays = content.get(ROUND), content.get(MODEL)
    if not isinstance(assignment, ConfigRecord) or not isinstance(arrays, ArrayRecord):
        return "its records are of another kind"
    if assignment.get("offer") != asked["offer"]:
        return "it is for another offer"
    if assignment.get("round") != asked["round"]:
        return plain(f"late: it is for round {assignment.get('round')!r}")
    if list(arrays) != list(common):
        return plain(f"its arrays are {', '.join(map(repr, arrays)) or 'none'}")
    if not has_code(code_key, PARTICIPANT, assignment, "" if code_key is None else array_bytes_digest(arrays)):
        return "not authentic: its code is not made with the key that was agreed on"
    report: dict[str, AnyArray] = {}
    for name, received in arrays.items():
        array = array_or_reason(received, common[name])
        if isinstance(array, str):
            return array
        report[name] = array
    if all(np.array_equal(report[name], common[name]) for name in common):
        return "empty: it is the model as it was sent"
    if bound:
        length = change_length(report, common)
        if length > bound:
            return f"too long: its change has length {length:.3g}; honest ones are beyond {bound:.3g} once in a million"
    return report


def change_length(report: Arrays, common: Arrays) -> float:
    """The L2 norm of the change of all parameters that are not whole numbers."""
    floats = (name for name in common if common[name].dtype.kind == "f")
    changes = (np.subtract(report[name], common[name], dtype=np.float64) for name in floats)
    return math.sqrt(math.fsum(float(np.square(change, out=change).sum()) for change in changes))


def array_or_reason(received: Array, common: AnyArray) -> AnyArray | str:
    """Check size, shape and dtype before decoding, so that no large or executable content is decoded."""
    if len(received.data) > common.nbytes + HEADER_BYTES:
        return f"oversized: {len(received.data):,} bytes for an array of {common.nbytes:,}"
    if tuple(received.shape) != common.shape:
        return f"its shape is {plain(tuple(received.shape), 60)}, not {common.shape}"
    if received.dtype != str(common.dtype):
        return f"its dtype is {plain(received.dtype, 30)}, not {common.dtype}"
    try:
        array = array_of_npy(received.data)
    except Exception:  # NumPy may raise anything for untrusted bytes
        return "its bytes are no array"
    if array.shape != common.shape or array.dtype != common.dtype:
        return "its bytes are another array than it says"
    largest = np.abs(array).max(initial=0)  # NaN if there is one
    if not np.isfinite(largest):
        return "it has NaN or infinity"
    if largest > LARGEST_NUMBER and array.dtype.kind == "f":
        return f"it has a number beyond {LARGEST_NUMBER:,.0f}"
    return array


HEX_DIGITS = frozenset("0123456789abcdef")


@dataclass(frozen=True, eq=False)
class Opened:
    """The salt and the model of an audition, as committed to."""

    salt: str
    model: Params


def commitment_or_reason(reply: Message) -> tuple[str | None, str | None]:
    """The commitment in a reply and None, or None and the reason why there is none."""
    document = document_or_reason(reply)
    if isinstance(document, str):
        return None, document
    commitment = document.get("commitment")
    if not _is_hash(commitment):
        return None, "its commitment is no hash"
    return str(commitment), None


def opening_or_reason(reply: Message, start: Params, offer: str, commitment: str, bound: float = 0.0) -> Opened | str:
    """The salt and the model in a reply, or the reason why it is refused.

    start       the public start of training; the model must have its form and differ from it
    offer       the hash of the client's offer
    commitment  what the client committed to
    bound       the largest length of the model; 0 for none
    """
    document = document_or_reason(reply)
    if isinstance(document, str):
        return document
    if set(reply.content.keys()) != {DOCUMENT, MODEL}:
        return plain(f"its records are {', '.join(sorted(map(repr, reply.content.keys())))}")
    if document.get("offer") != offer:
        return "it is for another offer"
    salt, arrays = document.get("salt"), reply.content.array_records.get(MODEL)
    if not _is_hash(salt):
        return "its salt is not 32 bytes"
    if arrays is None or list(arrays) != [PARAMS]:
        return "its records are of another kind"
    model = array_or_reason(arrays[PARAMS], start)
    if isinstance(model, str):
        return model
    if audition_commitment(offer, str(salt), model) != commitment:
        return "it is another model than the one committed to"
    if np.array_equal(model, start):
        return "empty: it is the model from which training starts"
    if bound and (length := solo_length(model)) > bound:
        return f"too long: the model has length {length:.3g}; by the offer it is at most {bound:.3g}"
    return Opened(str(salt), model)


def error_in(reply: Message) -> str:
    """The error that a reply reports."""
    return plain(f"error: {str(reply.error.reason).strip()}")


def document_or_reason(reply: Message) -> dict[str, Any] | str:
    """The document in a participant's reply, or the reason why there is none."""
    if reply.has_error():
        return error_in(reply)
    try:
        return reply_in(reply)
    except InputError as error:
        return plain(str(error).rstrip("."))


def _is_hash(value: object) -> bool:
    """Whether it is a text of 32 bytes in hexadecimal."""
    return isinstance(value, str) and len(value) == 2 * SECRET_BYTES and set(value) <= HEX_DIGITS


@dataclass(eq=False)
class Awaited:
    """The clients whose answers a stage awaits; they are asked in turns until all answered or time is up.

    waiting  by name: the offers of those who have not answered; the caller removes those who have
    removed  called with the offer of a client whom the operator removes, and the reason; they are not asked again
    """

    roster: Roster
    clock: StageClock
    waiting: dict[str, Offer]
    removed: Callable[[Offer, str], None] = lambda _offer, _reason: None

    def turns(self) -> Iterator[Mapping[int, Offer]]:
        """In each turn, by node: the offers of connected clients who have not answered."""
        while self.waiting:
            gone = self.roster.control.removed
            for name in set(self.waiting) & set(gone):
                self.removed(self.waiting.pop(name), gone[name])
            node_of = self.roster.node_of
            yield {node_of[name]: offer for name, offer in self.waiting.items() if name in node_of}
            if not self.waiting or self.clock.over:
                return
            self.clock.wait()
            self.roster.refresh()

    def replies(
        self,
        action: str,
        offer_at: Mapping[int, Offer],
        question: Callable[[Offer], Mapping[str, Any]],
        timeout: float = REPLY_TIMEOUT,
    ) -> list[tuple[int, Offer, Message]]:
        """Ask the clients at these nodes; return node, offer and reply of each reply in time."""
        messages = [query_message(action, node, question(offer)) for node, offer in offer_at.items()]
        replies = self.roster.ask(messages, timeout=timeout, clock=self.clock)
        return [(node, offer_at[node], reply) for node, reply in replies if node in offer_at]


MOST_SECONDS_LATE = 20.0  # beyond the time of a round, for repeated questions that open its sum
USUAL_WAIT = 3.0  # seconds, or multiples of the last rounds: shorter waits are not reported


@dataclass(eq=False)
class SilentPeople:
    """Participants who were connected and did not answer, and the round in which each is asked again.

    misses  by name: how many rounds in a row were not answered
    again   by name: the next round in which they are asked
    heard   participants who have answered all questions of this round so far
    """

    misses: dict[str, int] = field(default_factory=dict)
    again: dict[str, int] = field(default_factory=dict)
    heard: set[str] = field(default_factory=set)

    def begin_round(self) -> None:
        """Forgive those who answered all questions of the round before."""
        for name in self.heard:
            self.misses.pop(name, None)
            self.again.pop(name, None)
        self.heard.clear()

    def are_skipped(self, name: str, round_: int) -> bool:
        """Whether a participant is not asked in this round, provided that the others are enough."""
        return self.again.get(name, 0) > round_

    def note(self, name: str, round_: int, *, answered: bool) -> None:
        """Note whether a participant answered a question in a round."""
        if answered:
            self.heard.add(name)
        else:
            self.heard.discard(name)
            self.again[name] = round_ + 2 ** self.misses.get(name, 0)
            self.misses[name] = self.misses.get(name, 0) + 1


class RoundWait:
    """The time that a round may take. It does not pass during a pause."""

    def __init__(self, roster: Roster, round_: int, seconds: float) -> None:
        self.roster, self.round = roster, round_
        self._began = time.monotonic()
        self._deadline = self._began + seconds
        self._clock: StageClock | None = None

    @property
    def seconds_left(self) -> float:
        return max(self._deadline - time.monotonic(), 0.0) if self._clock is None else self._clock.seconds_left

    @property
    def over(self) -> bool:
        """Whether the time is up, or the operator ended the job."""
        return not self.seconds_left if self._clock is None else self._clock.over

    @property
    def gives_up(self) -> bool:
        """Whether to stop asking: the operator ended the job, or the time was up a while ago."""
        control = self.roster.control
        control.poll()
        deadline = self._deadline if self._clock is None else self._clock.deadline
        return control.ended is not None or time.monotonic() > deadline + MOST_SECONDS_LATE

    def ask(self, messages: Iterable[Message], seconds: float) -> list[tuple[int, Message]]:
        """Ask connected participants, as `Roster.ask`; tell the operator who takes longer than usual."""
        return self.roster.ask(messages, timeout=seconds, noting=self._note)

    def for_people(self, names: Collection[str]) -> None:
        """Wait a moment for participants who are away; tell the operator."""
        if self._clock is None:
            self._clock = self.roster.stage(TRAINING, self.seconds_left)
        self._note(names)
        self._clock.wait()
        self.roster.refresh()

    def ends(self) -> None:
        """Clear the list of awaited participants."""
        live = self.roster.live
        if live.status.waits is not None:
            live.set_waits(())
        if self._clock is not None:
            live.begin(TRAINING)

    def _note(self, names: Collection[str]) -> None:
        """Tell for whom the round waits, if it takes longer than usual."""
        live = self.roster.live
        usual = USUAL_WAIT * max(1.0, median(live.status.round_seconds or [0.0]))
        if live.status.waits is None and time.monotonic() < self._began + usual:
            return
        until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=math.ceil(self.seconds_left))
        live.set_waits(names, self.round + 1, time_text(until))


def collect_reports(
    wait: RoundWait,
    offers: Sequence[Offer],
    ready: Callable[[], Sequence[Offer]],
    messages: Callable[[Sequence[Offer]], Sequence[Message]],
    take: Callable[[Offer, Message], str | None],
    enough: Callable[[Collection[str]], bool],
    silent: SilentPeople,
) -> list[Rejection]:
    """Ask for reports until all have answered; wait for absent clients until there are enough or time is up.

    Nobody is waited for when all who were not removed are there and are too few to be asked.

    offers    of all clients asked in this round
    ready     returns the offers of clients who can be asked now
    messages  the training messages to some of them; to none if there are too few
    take      takes a reply, or returns why it is refused
    enough    whether these people's reports would be enough, together with those already taken
    """
    roster, round_, answered, rejected = wait.roster, wait.round, set[str](), list[Rejection]()
    silent.begin_round()
    while True:
        there = [offer for offer in ready() if offer.client.name not in answered]
        awake = [offer for offer in there if not silent.are_skipped(offer.client.name, round_)]
        asked = awake if enough([offer.client.name for offer in awake]) else there
        sent = messages(asked)
        offer_at = {roster.node_of[offer.client.name]: offer for offer in asked}
        waited_for = {offer_at[message.metadata.dst_node_id].client.name for message in sent}
        for node, reply in wait.ask(sent, wait.seconds_left) if sent else ():
            offer = offer_at.get(node)
            if offer is None:
                rejected.append((None, node, "the node is not in the contract"))
                continue
            waited_for.discard(offer.client.name)
            if reply.has_error() and reply.error.code != CLIENT_APP_FAILED:
                continue  # the node went away; it is asked again when it is back
            answered.add(offer.client.name)
            silent.note(offer.client.name, round_, answered=True)
            reason = take(offer, reply)
            if reason is not None:
                rejected.append((offer.client.name, node, reason))
        for name in waited_for:
            silent.note(name, round_, answered=False)
        away = {offer.client.name for offer in offers} - answered - set(roster.control.removed)
        too_few = not sent and away <= {offer.client.name for offer in there}
        if enough(()) or not away or too_few or wait.over:
            wait.ends()
            return rejected
        wait.for_people({name for name in away if name not in roster.node_of} or away)
