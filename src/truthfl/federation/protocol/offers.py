"""Send offers with the classes' examples, collect the answers, and wait for labels.

A message has the signed offer and the files, so its recipient can check them.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from flwr.app import Message

from truthfl.coded_text import coded, untranslated
from truthfl.contracts.planning import WORTH_LESS
from truthfl.errors import InputError
from truthfl.federation.operator.approval import NOT_APPROVED, Approve, PlanSummary, approve_all, summary_of
from truthfl.federation.operator.live_status import APPROVING, LABELING, OFFERING, PLANNING, note_labels
from truthfl.federation.protocol.enrolment import REPLY_TIMEOUT, Roster
from truthfl.federation.protocol.job_control import SECONDS_BETWEEN_READS, JobEndedError
from truthfl.federation.protocol.messages import EXAMPLES, LABELS, LATE_LABELS, OFFER, query_message, reply_in
from truthfl.federation.protocol.reports import Awaited
from truthfl.instructions import ClassInstructions, Example, Instructions
from truthfl.job.classes_section import ClassesSection, read_example
from truthfl.ledger.documents import answer_fault, signed_offer
from truthfl.ledger.entry import Item
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.signing import PrivateKey
from truthfl.ledger.terms import Agreement, Offer
from truthfl.samples.example_files import keep_example, kept_example, small_example
from truthfl.texts import plain


def kept_instructions(section: ClassesSection, home: Path) -> Instructions | None:
    """The instructions, whose examples are in the folder `home` when this returns; None if there are none."""
    if not section:
        return None
    try:
        small = [[small_example(read_example(file), file) for file in one.files] for one in section.classes]
        classes = tuple(
            ClassInstructions(one.name, one.description, _distinct([example for example, _ in files]))
            for one, files in zip(section.classes, small, strict=True)
        )
        instructions = Instructions(section.instructions, classes)
    except InputError as error:
        raise InputError(f"[classes] {error}") from None
    for example, content in (one for files in small for one in files):
        keep_example(home, example, content)
    return instructions


def _distinct(examples: list[Example]) -> tuple[Example, ...]:
    return tuple(dict.fromkeys(examples))


AT_ONCE = 8  # participants to whom they are sent at the same time; a message may have some megabytes
MOST_TIMES = 5  # that they are sent to one participant, whatever their computer answers


class ExampleDelivery:
    """Sends the examples in an operator's folder.

    sent  by client: how often they were sent to them
    """

    def __init__(self, roster: Roster, folder: Path) -> None:
        self.roster, self.folder = roster, folder
        self.sent: Counter[str] = Counter()

    def send(self, offers: Mapping[int, Offer]) -> dict[str, str]:
        """Send the examples to these nodes; return by client why their computer refused them, if it did."""
        refused: dict[str, str] = {}
        due = {node: offer for node, offer in offers.items() if self.sent[offer.client.name] < MOST_TIMES}
        nodes = list(due)
        for first in range(0, len(nodes), AT_ONCE):
            chosen = {node: due[node] for node in nodes[first : first + AT_ONCE]}
            self.sent.update(offer.client.name for offer in chosen.values())
            messages = [query_message(EXAMPLES, node, self._document(offer)) for node, offer in chosen.items()]
            for node, reply in self.roster.ask(messages, timeout=REPLY_TIMEOUT):
                if node in chosen and (fault := _fault(reply)) is not None:
                    refused[chosen[node].client.name] = fault
        return refused

    def _document(self, offer: Offer) -> dict[str, Any]:
        instructions = offer.job.instructions or Instructions()
        files = {}
        for example in instructions.examples:
            content = kept_example(self.folder, example)
            if content is None:
                raise InputError(
                    f"the example {example.sha256} is not in {self.folder} any more, and offers name it; put it back "
                    "from a backup, or begin another job."
                )
            files[example.sha256] = b64encode(content).decode()
        return {"offer": offer.envelope(), "examples": files}


def _fault(reply: Message) -> str | None:
    """Why a participant's computer refused the examples; None if it did not, or gave no reason."""
    if reply.has_error():
        return plain(reply.error.reason or "the participant's computer failed")
    try:
        reason = reply_in(reply).get("refused")
    except InputError as error:
        return plain(error)
    return None if reason is None else plain(reason)


DECLINED_NEWS = coded(
    "news.declined", "The job goes on without you: you declined its offer, or did not answer in time."
)
LATE_LABELS_NEWS = coded("news.late_labels", "Training has begun; rounds without your labels are not paid.")

MakeOffers = Callable[[list[str], int], tuple[dict[str, Any], Agreement]]
"""Called with client names and a version; returns the plan's ledger document without the terms, and the offers."""


def reach_agreement(
    roster: Roster,
    make_offers: MakeOffers,
    key: PrivateKey,
    approve: Approve = approve_all,
    delivery: ExampleDelivery | None = None,
) -> Agreement:
    """Send offers to all enrolled clients, and new ones to the others when some decline, until all accept.

    key      the operator's, which signs the offers
    approve  asked before the first offers are sent, and before later offers that cost more
    delivery  sends the examples of the classes to participants who lack them
    """
    view = job_view(roster.job_name, roster.ledger.entries(roster.job_name))
    names = [name for name in roster.names if name in roster.descriptions]
    version = 1
    approved: PlanSummary | None = None
    while True:
        offered = _recorded_offers(view, version)
        if offered is None:
            plan, unsigned = _plan_without_removed(roster, make_offers, names, version)
            offered = _signed(unsigned, key)
            summary = summary_of(offered, plan, left_out_of(plan), roster.server)
            if approved is None or not approved.covers(summary):
                roster.live.begin(APPROVING)
                if not _answer_unless_ended(roster, approve, summary):
                    raise InputError(NOT_APPROVED)
                approved = summary
            plan_item = Item(roster.job_name, "plan", str(version), plan | {"terms": offered.terms.document()})
            left_out = _left_out_items(roster.job_name, version, plan)
            roster.ledger.append_all([plan_item, *left_out, *_offer_items(offered)])
        else:
            plan = next((entry.document for entry in view.plans if entry.key == str(version)), {})
            approved = summary_of(offered, plan, {}, roster.server)
        _tell_left_out(roster, left_out_of(plan))
        declined = _collect_answers(roster, view, _signed(offered, key).offers, delivery)
        if not declined:
            return offered
        told = declined - set(roster.control.removed)  # removed clients already know
        roster.tell(_connected_nodes(roster, told), DECLINED_NEWS, over=True)
        names = [offer.client.name for offer in offered.offers if offer.client.name not in declined]
        if not names:
            raise InputError("every client declined the offer; there is nobody to train with.")
        version += 1


def _plan_without_removed(
    roster: Roster, make_offers: MakeOffers, names: list[str], version: int
) -> tuple[dict[str, Any], Agreement]:
    """Plan for those of these clients whom the operator did not remove, again if one is removed in the meantime."""
    while True:
        roster.control.require_not_ended()
        roster.hold()
        removed = {name: reason for name, reason in roster.control.removed.items() if name in names}
        present = [name for name in names if name not in removed]
        if not present:
            raise InputError("the operator removed every client; there is nobody to train with.")
        roster.live.begin(PLANNING)
        plan, agreement = make_offers(present, version)
        roster.control.require_not_ended()
        if not {offer.client.name for offer in agreement.offers} & set(roster.control.removed):
            return (plan | {"left_out": removed | left_out_of(plan)} if removed else plan), agreement


def _answer_unless_ended(roster: Roster, approve: Approve, summary: PlanSummary) -> bool:
    """Whether the operator approves the plan; raise `JobEndedError` if they end the job instead."""
    answers: Queue[bool | BaseException] = Queue()

    def ask() -> None:
        try:
            answers.put(approve(summary))
        except BaseException as error:
            answers.put(error)

    Thread(target=ask, name="truthfl approval", daemon=True).start()
    while True:
        try:
            answer = answers.get(timeout=SECONDS_BETWEEN_READS)
        except Empty:
            roster.control.require_not_ended()
            continue
        if isinstance(answer, BaseException):
            raise answer
        return answer


def wait_for_labels(roster: Roster, agreement: Agreement, progress: Callable[[int], None]) -> set[str]:
    """Wait until all clients have labeled or the labeling time is up; return the names of those who have.

    progress  called with the number of clients who have labeled
    """
    clock, names = roster.stage(LABELING, agreement.terms.label_seconds), {one.client.name for one in agreement.offers}

    def question(offer: Offer) -> dict[str, Any]:
        """The time left; a duration, since the node's clock need not agree with this one."""
        return {"offer": offer.hash, "seconds_left": round(clock.seconds_left, 1)}

    awaited = Awaited(roster, clock, {offer.client.name: offer for offer in agreement.offers})
    for there in awaited.turns():
        for _, offer, reply in awaited.replies(LABELS, there, question):
            name = offer.client.name
            if name not in awaited.waiting or reply.has_error():
                continue
            note_labels(roster.live, name, _field_of(reply, "labeled"), offer.client.samples)
            if _field_of(reply, "ready") is True:
                del awaited.waiting[name]
        progress(len(names) - len(awaited.waiting))
    if awaited.waiting and not agreement.terms.has_solo_models:  # otherwise they hear of it after the audition
        late = _connected_nodes(roster, awaited.waiting)
        roster.tell(late, LATE_LABELS_NEWS, over=False, about=LATE_LABELS)
    return names - set(awaited.waiting) - set(roster.control.removed)


def left_out_of(plan: Mapping[str, Any]) -> dict[str, str]:
    """By name: why this plan does not ask an enrolled client."""
    return dict(plan.get("left_out", {}))


def _tell_left_out(roster: Roster, left_out: Mapping[str, str]) -> None:
    for reason in dict.fromkeys(left_out.values()):
        names = [name for name, own in left_out.items() if own == reason]
        why = WORTH_LESS if reason == WORTH_LESS else untranslated(reason)
        sentence = coded("news.left_out", "You are not asked this time: {reason}.", reason=why)
        roster.tell(_connected_nodes(roster, names), sentence, over=True)


def _left_out_items(job: str, version: int, plan: Mapping[str, Any]) -> list[Item]:
    """A rejection for each client whom this plan does not ask."""
    document = {"stage": "plan", "round": None, "node": None}
    return [
        Item(job, "rejection", f"plan/{version}/{name}", document | {"client": name, "reason": reason})
        for name, reason in left_out_of(plan).items()
    ]


def _recorded_offers(view: JobView, version: int) -> Agreement | None:
    """The offers of this version in the ledger; None if there are none."""
    offers = view.offers_of(version)
    return Agreement(view.terms_of(version, offers), offers) if offers else None


def _signed(offered: Agreement, key: PrivateKey) -> Agreement:
    """The offers with the operator's signature; those in the ledger are already signed."""
    return replace(
        offered, offers=tuple(offer if offer.signature else signed_offer(offer, key) for offer in offered.offers)
    )


def _offer_items(offered: Agreement) -> list[Item]:
    return [Item(offered.terms.name, "offer", offer.key, offer.envelope()) for offer in offered.offers]


def _collect_answers(
    roster: Roster, view: JobView, offers: tuple[Offer, ...], delivery: ExampleDelivery | None
) -> set[str]:
    """Send the offers, and the examples to clients who lack them, until all clients have answered or time is up.

    Return the names of the clients who declined or did not answer in time.
    """
    declined = {offer.client.name for offer in offers if offer.key in view.answers and not _accepted(view, offer)}
    waiting = {offer.client.name: offer for offer in offers if offer.key not in view.answers}
    clock = roster.stage(OFFERING, roster.server.answer_seconds)

    def removed(offer: Offer, reason: str) -> None:
        _record_rejection(roster, offer, reason)
        declined.add(offer.client.name)

    awaited = Awaited(roster, clock, waiting, removed)
    for there in awaited.turns():
        answers: list[Item] = []
        lacking: dict[int, Offer] = {}
        for node, offer, reply in awaited.replies(OFFER, there, Offer.envelope):
            if offer.client.name not in waiting or reply.has_error():
                continue
            answer = _valid_answer(roster, offer, reply)
            if answer is None:
                if _field_of(reply, "lacks_examples") is True:
                    lacking[node] = offer
                continue
            answers.append(Item(roster.job_name, "answer", offer.key, answer))
            if answer["document"]["kind"] == "refusal":
                declined.add(offer.client.name)
            del waiting[offer.client.name]
        roster.ledger.append_all(answers)
        if lacking and delivery is not None and not clock.over:
            for name, reason in delivery.send(lacking).items():
                _record_rejection(roster, waiting[name], f"examples: {reason}")
    if waiting and roster.control.ended is not None:
        raise JobEndedError
    for offer in waiting.values():
        _record_rejection(roster, offer, "no answer in time")
    return declined | set(waiting)


def _valid_answer(roster: Roster, offer: Offer, reply: Message) -> dict[str, Any] | None:
    """The signed answer in a reply; None if there is none yet, or if it is invalid, which is recorded."""
    answer = _field_of(reply, "answer")
    if not isinstance(answer, dict):
        return None
    fault = answer_fault(answer, offer)
    if fault is not None:
        _record_rejection(roster, offer, f"answer: {fault}")
        return None
    return answer


def _accepted(view: JobView, offer: Offer) -> bool:
    return bool(view.answers[offer.key].document["document"]["kind"] == "acceptance")


def _record_rejection(roster: Roster, offer: Offer, reason: str) -> None:
    rejection = {"round": None, "client": offer.client.name, "node": None, "reason": plain(reason)}
    roster.refusals.note("offer", offer.key, reason.partition(":")[0], rejection)


def _connected_nodes(roster: Roster, names: Iterable[str]) -> list[int]:
    return [roster.node_of[name] for name in names if name in roster.node_of]


def _field_of(reply: Message, field: str) -> Any:
    """A field of the document in an untrusted reply; None if it cannot be read."""
    try:
        return reply_in(reply).get(field)
    except InputError:
        return None
