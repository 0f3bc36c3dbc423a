"""Enrolment: connected nodes are identified, checked and matched to the job's clients.

A new node is asked who it is, and nobody waits for the reply. So a silent node delays neither the enrolment of others
nor a round. A problem that a client can correct has a form (`coded_text`), so their page shows it in their language.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from secrets import token_hex
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from truthfl.coded_text import CodedText, coded, sentence_of, untranslated
from truthfl.contracts.setting import number, whole_number
from truthfl.errors import InputError, ServiceError
from truthfl.federation.operator.commands import tell_newcomer
from truthfl.federation.operator.live_status import ENROLLING, LiveWriter, note_connected, note_replies
from truthfl.federation.protocol.job_control import JobControl, StageClock, hold_while_paused
from truthfl.federation.protocol.messages import (
    ENROL,
    NEWS_TIMEOUT,
    OpenQuestions,
    ask_nodes,
    news_messages,
    query_message,
    registrations,
    reply_in,
)
from truthfl.federation.protocol.recorder import OTHER, RefusalRows
from truthfl.job import DataJob, ServerSettings
from truthfl.job.sections import cost_range
from truthfl.learning.tasks.task_choice import PICTURES, TaskChoice
from truthfl.ledger.book import Ledger
from truthfl.ledger.entry import Item
from truthfl.ledger.signing import normal_public_line, signed_by
from truthfl.texts import plain, plain_name

LEAST_COST_SHARE = 0.01  # of the job's cost; a lower statement is a mistake, or meant to break the plan


@dataclass(frozen=True)
class StatedLimits:
    """The job's values for one client.

    fewest_samples  a client with fewer is not enrolled
    most_samples    the offer asks for no more of the client's samples
    label_cost      of one label
    sample_cost     of one sample in one round's gradient
    cost_range      the lowest and the highest sample cost that may be stated, in a job with a distribution of costs
    """

    fewest_samples: int
    most_samples: int
    label_cost: float
    sample_cost: float
    cost_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class ReckonedClient:
    """The plan's values: number of samples, cost of labeling them all, cost of one sample in one gradient.

    stated  whether the client stated the last, in a job with a distribution of costs
    """

    samples: int
    labeling_cost: float
    sample_cost: float
    stated: bool = False


def limits_of(job: DataJob) -> dict[str, StatedLimits]:
    """The limits of each of the job's clients. They need not bring more samples than the job states."""
    clients, distribution = job.clients, job.server.cost_distribution
    costs = None if distribution is None else cost_range(distribution)
    return {
        name: StatedLimits(min(job.server.fewest_samples, size), size, float(label_cost), float(sample_cost), costs)
        for name, size, label_cost, sample_cost in zip(
            clients.name, clients.dataset_size, clients.label_cost, clients.sample_cost, strict=True
        )
    }


def require_within(description: Mapping[str, Any], limits: StatedLimits) -> None:
    """Raise `InputError` if no plan can be made with the values in a checked enrolment document."""
    samples = description["samples"]
    if samples < limits.fewest_samples:
        words = "{name} brings {count} samples; the job asks for {fewest} or more."
        if samples == 1:
            words = "{name} brings {count} sample; the job asks for {fewest} or more."
        name, fewest = description["name"], limits.fewest_samples
        raise InputError(coded("refusal.few_samples", words, name=name, count=samples, fewest=fewest))
    own_cost = description.get("sample_cost")
    if own_cost is not None and limits.cost_range is not None:
        low, high = limits.cost_range
        if not low <= own_cost <= high:
            words = "sample_cost is {cost}; the job takes costs from {low} to {high}."
            values = {"cost": f"{own_cost:g}", "low": f"{low:g}", "high": f"{high:g}"}
            raise InputError(coded("refusal.cost_range", words, **values))
    stated = {
        "labeling_cost": (description.get("labeling_cost"), limits.label_cost * samples),
        "sample_cost": (own_cost if limits.cost_range is None else None, limits.sample_cost),
    }
    for name, (cost, job_cost) in stated.items():
        if cost is not None and cost < LEAST_COST_SHARE * job_cost:
            words = "{field} is {cost}; the job reckons with {usual}, and lower ones are taken from {least} on."
            values = {"cost": f"{cost:g}", "usual": f"{job_cost:g}", "least": f"{LEAST_COST_SHARE * job_cost:g}"}
            raise InputError(coded("refusal.low_cost", words, field=name, **values))


def reckoned(description: Mapping[str, Any], limits: StatedLimits, labeling_cost: float) -> ReckonedClient:
    """The lower of the client's and the job's numbers; `labeling_cost` is the job's, of all `most_samples`.

    In a job with a distribution of costs, the client's stated sample cost is used as it is.
    """
    brought = description["samples"]
    samples = min(limits.most_samples, brought)
    labeling = labeling_cost * (samples / limits.most_samples)
    if "labeling_cost" in description:
        labeling = min(labeling, float(description["labeling_cost"]) * (samples / brought))
    sample_cost = float(description.get("sample_cost", limits.sample_cost))
    if limits.cost_range is not None:
        return ReckonedClient(samples, labeling, sample_cost, stated="sample_cost" in description)
    return ReckonedClient(samples, labeling, min(limits.sample_cost, sample_cost))


def require_proof(sent: Mapping[str, Any], job: str, challenge: str) -> None:
    """Raise InputError unless a description is signed, for this job and challenge, by the key that it names.

    The sender of a message is not certain. Without this, one participant's connection could enrol another.
    """
    if set(sent) != {"document", "signature"} or not isinstance(sent["document"], Mapping):
        raise InputError("a client's description is not signed.")
    document = {"kind": "enrolment", "job": job, "challenge": challenge, "description": dict(sent["document"])}
    if not signed_by(str(sent["document"].get("public_key")), document, str(sent["signature"])):
        raise InputError("a client's description is not signed by the key that it names, for this server.")


def checked_description(
    sent: Mapping[str, Any], image_shape: tuple[int, ...] | None, task: TaskChoice = PICTURES
) -> dict[str, Any]:
    """Return the enrolment document a client sent, without the kind of samples; raise InputError if it is invalid.

    image_shape  of the job's pictures; None if it has others, or clients need not state theirs. None from a client
                  means that their pictures are fitted to the offer
    """
    _require_task(sent, task)
    required = {"name", "samples", "public_key"} | (set() if image_shape is None else {"image_shape"})
    required |= set() if task.is_pictures else {"task"} | ({"source"} if task.is_own else set())
    optional = {"labeling_cost", "sample_cost"}
    if not required <= set(sent) <= required | optional:
        raise InputError(f"a client's description consists of {', '.join(sorted(sent)) or 'nothing'}.")
    name = plain_name("name", sent["name"])
    key = normal_public_line(str(sent["public_key"]))
    if image_shape is not None and sent["image_shape"] not in (None, list(image_shape)):
        shape = plain(sent["image_shape"], 60)
        words = "{name}'s pictures are {own}; the job's are {asked}."
        raise InputError(coded("refusal.other_shape", words, name=name, own=shape, asked=list(image_shape)))
    samples = whole_number("samples", sent["samples"], at_least=1)
    costs = {field: number(field, sent[field], positive=True) for field in sorted(optional & set(sent))}
    return {"name": name, "samples": samples, "public_key": key, **costs}


def _require_task(sent: Mapping[str, Any], task: TaskChoice) -> None:
    """Raise InputError if a client's samples are for another task than the job's."""
    stated, name = plain(sent.get("task", PICTURES.name), 60), plain(sent.get("name", "a client"), 60)
    if stated != task.name:
        if task.is_pictures:
            words = "{name} brings {stated}; this job is on {task}: they join without --task."
            raise InputError(coded("refusal.without_task", words, name=name, stated=stated, task=task.name))
        file = f"FILE.py:{task.name}" if task.is_own else task.name
        words = "{name} brings {stated}; this job is on {task}: they join with --task {file}."
        raise InputError(coded("refusal.with_task", words, name=name, stated=stated, task=task.name, file=file))
    if task.is_own and sent.get("source") != task.source():
        theirs = plain(sent.get("source", "none"), 60)[:8]
        words = (
            "{name}'s task {task} is another than the job's: its source is {theirs}…, the job's {source}…. The "
            "operator's file is the one to install."
        )
        source = task.source()[:8]
        raise InputError(coded("refusal.other_source", words, name=name, task=task.name, theirs=theirs, source=source))


REPLY_TIMEOUT = 60.0  # seconds
SECONDS_BETWEEN_REFRESHES = 1.0  # while rounds run
LATE_NEWS = coded(
    "news.late",
    "The job runs without you: its offers were made before you joined. The operator may ask you another time.",
)
RECONNECT_SECONDS = 30.0  # how long a restarted server waits for participants


@dataclass(eq=False)
class Roster:
    """The job's clients and their connected nodes.

    names          of the job's clients
    image_shape    of the job's pictures; None if clients train on other data
    task           what is learned
    authenticated  whether nodes are registered with Flower by name and key; enrolments must then match the registration
    limits         by client: the limits of their statements; empty if any number of samples and any cost is accepted
    descriptions   by client: the checked enrolment document, as in the ledger
    node_of        by client: the id of their connected node
    contract       names of the clients with a contract; None before there is one
    handled_nodes  connected nodes that replied to the enrolment message, accepted or not
    challenges     by node that was asked who it is: what its reply must sign
    greetings      the questions to them
    news           sentences that were sent
    refusals       counts those in a round that belong to no client, for the ledger
    control        the operator's commands
    live           the live status for other processes
    missed         called at intervals with the public keys that nodes have newly proved, by node, and those of the
                   nodes that are connected only for receipts
    """

    grid: Grid
    ledger: Ledger
    job_name: str
    names: tuple[str, ...]
    server: ServerSettings
    image_shape: tuple[int, ...] | None
    authenticated: bool = False
    limits: Mapping[str, StatedLimits] = field(default_factory=dict)
    descriptions: dict[str, dict[str, Any]] = field(default_factory=dict)
    task: TaskChoice = PICTURES
    node_of: dict[str, int] = field(default_factory=dict)
    handled_nodes: set[int] = field(default_factory=set)
    contract: frozenset[str] | None = None
    control: JobControl = field(default_factory=JobControl)
    live: LiveWriter = field(default_factory=lambda: LiveWriter(None, ""))
    missed: Callable[[Mapping[int, str], Collection[int]], None] = lambda *_: None
    last_refresh: float = float("-inf")
    challenges: dict[int, str] = field(default_factory=dict)
    greetings: OpenQuestions = field(init=False)
    news: OpenQuestions = field(init=False)
    refusals: RefusalRows = field(init=False)

    def __post_init__(self) -> None:
        self.greetings, self.news = OpenQuestions(self.grid), OpenQuestions(self.grid)
        self.refusals = RefusalRows(self.ledger, self.job_name)

    @cached_property
    def known_names(self) -> frozenset[str]:
        """The names of the job's clients."""
        return frozenset(self.names)

    def ask(
        self,
        messages: Iterable[Message],
        *,
        timeout: float,
        clock: StageClock | None = None,
        noting: Callable[[Collection[str]], None] = lambda _: None,
    ) -> list[tuple[int, Message]]:
        """Send messages and return (node id, reply) for the replies in time, which the live status notes.

        Commands are read in the meantime. Nobody waits for the replies of removed clients.

        clock   of the stage that asks; waiting ends when a command interrupts it
        noting  called at intervals with the names of clients whose replies are still awaited
        """
        name_of = {node: name for name, node in self.node_of.items()}

        def still_awaited(nodes: set[int]) -> set[int]:
            self.control.poll()
            if clock is not None and clock.interrupted:
                return set()
            awaited = {node for node in nodes if name_of.get(node) not in self.control.removed}
            noting([name_of[node] for node in awaited if node in name_of])
            return awaited

        asked_at = time.time()
        replies = ask_nodes(self.grid, messages, timeout=timeout, still_awaited=still_awaited)
        note_replies(self.live, name_of, asked_at, replies)
        return replies

    def tell(self, nodes: Iterable[int], sentence: str, *, over: bool, about: str = "") -> None:
        """Send a sentence to these nodes without waiting for delivery; as in `news_messages`."""
        self.news.send(news_messages(nodes, sentence, over=over, about=about), NEWS_TIMEOUT)

    def stage(self, stage: str, seconds: float, *, ends_with_job: bool = True) -> StageClock:
        """Enter a stage in which the server waits this long; if the job is paused, first wait for it to resume."""
        self.hold()
        return StageClock(self.control, self.live, stage, seconds, self.refresh, ends_with_job=ends_with_job)

    def hold(self) -> None:
        """Wait while the job is paused."""
        hold_while_paused(self.control, self.live, self.refresh)

    def refresh_sometimes(self) -> None:
        """Refresh unless the last refresh was a moment ago."""
        if time.monotonic() >= self.last_refresh + SECONDS_BETWEEN_REFRESHES:
            self.refresh()

    def refresh(self) -> None:
        """Remove nodes that disconnected, identify new ones, and enrol those that have replied."""
        self.last_refresh = time.monotonic()
        connected = set(self.grid.get_node_ids())
        self.node_of = {name: node for name, node in self.node_of.items() if node in connected}
        self.handled_nodes &= connected
        guests = self._guests(connected - self.handled_nodes)
        self.handled_nodes |= guests.keys()
        new_nodes = sorted(connected - self.handled_nodes)
        self._greet([node for node in new_nodes if node not in self.greetings.nodes])
        proved = self._admit(self.greetings.replies())
        self.missed(proved | guests, guests.keys())
        self.news.replies()
        note_connected(self.live, {*self.node_of, *self._silent_names(new_nodes)})

    def _guests(self, new_nodes: Collection[int]) -> dict[int, str]:
        """By node: the keys of the nodes that are admitted without a name, to get receipts of earlier jobs."""
        if not new_nodes or not self.authenticated:
            return {}
        registered = registrations(self.grid)
        return {node: registered[node][1] for node in new_nodes if node in registered and not registered[node][0]}

    def _silent_names(self, new_nodes: Collection[int]) -> set[str]:
        """The clients with registered nodes among these that have not yet identified themselves."""
        silent = [node for node in new_nodes if node not in self.handled_nodes]
        if not silent or not self.authenticated:
            return set()
        registered = registrations(self.grid)
        return {registered[node][0] for node in silent if node in registered} & self.known_names

    def _greet(self, nodes: list[int]) -> None:
        """Ask these nodes for identification; ask again after REPLY_TIMEOUT without a reply."""
        self.challenges |= {node: token_hex(16) for node in nodes}
        messages = [
            query_message(ENROL, node, {"job": self.job_name, "challenge": self.challenges[node]}) for node in nodes
        ]
        self.greetings.send(messages, REPLY_TIMEOUT)

    def _admit(self, replies: Iterable[tuple[int, Message]]) -> dict[int, str]:
        """Enrol or reject nodes that have identified themselves; return the public keys that they proved."""
        replied = [(node, reply) for node, reply in replies if node in self.challenges and not reply.has_error()]
        registered = registrations(self.grid) if replied and self.authenticated else {}
        enrolled: list[Item] = []
        proved: dict[int, str] = {}
        for node, reply in replied:
            self.handled_nodes.add(node)
            try:
                sent = reply_in(reply)
                require_proof(sent, self.job_name, self.challenges.pop(node))
                description = checked_description(sent["document"], self.image_shape, self.task)
                name, proved[node] = description["name"], description["public_key"]
                if self.authenticated and registered.get(node) != (name, description["public_key"]):
                    words = "{name} is not whom this node is registered for."
                    raise InputError(coded("refusal.other_node", words, name=name))
                enrolled += self._enrol(node, description)
            except InputError as error:
                if node in proved:  # before the message that there is nothing for them here
                    self.missed({node: proved.pop(node)}, ())
                name = registered[node][0] if node in registered else ""
                self._reject(node, sentence_of(error), name if name in self.known_names else "")
        if enrolled:
            self.ledger.append_all(enrolled)
        return proved

    def _enrol(self, node: int, description: dict[str, Any]) -> list[Item]:
        """Enrol a client; return the items for the ledger, none if they have enrolled before."""
        name = description["name"]
        if name not in self.known_names:
            raise InputError(coded("refusal.unknown", "{name} is not among the job's clients.", name=name))
        if self.contract is not None and name not in self.contract:
            words = "the job runs without {name}: it has begun. The operator may ask them another time."
            raise InputError(coded("refusal.begun", words, name=name))
        earlier = self.descriptions.get(name)
        if earlier is not None and earlier["public_key"] != description["public_key"]:
            raise InputError(coded("refusal.other_key", "{name} enrolled with another key.", name=name))
        if name in self.node_of:
            raise InputError(coded("refusal.there", "{name} is there already, on another node.", name=name))
        if earlier is None:
            if name in self.limits:
                require_within(description, self.limits[name])
            self.descriptions[name] = description
        self.node_of[name] = node
        tell_newcomer(self, name)
        return [Item(self.job_name, "enrolment", name, description)] if earlier is None else []

    def _reject(self, node: int, reason: str, name: str) -> None:
        """Refuse a node, which is registered for the client of this name, or "" for none."""
        reason = reason if isinstance(reason, CodedText) else untranslated(plain(reason))
        cause = str(reason.form.get("key", OTHER))
        rejection = {"round": None, "client": None, "node": str(node), "reason": str(reason)}
        self.refusals.note("enrolment", name, cause, rejection)
        words = "The operator's server does not admit you: {reason}"
        self.tell([node], coded("news.not_taken", words, reason=reason), over=True)


def wait_for_clients(roster: Roster) -> None:
    """Wait until all of the job's clients have enrolled, or until the enrolment time is up and at least one has.

    Clients whom the operator removed are not awaited.
    """
    clock = StageClock(roster.control, roster.live, ENROLLING, roster.server.enrol_seconds, roster.refresh)
    while True:
        roster.refresh()
        if not set(roster.names) - {*roster.descriptions, *roster.control.removed} or clock.over:
            break
        clock.wait()
    roster.control.require_not_ended()
    if not roster.descriptions:
        raise ServiceError(f"no client enrolled within {roster.server.enrol_seconds:g} seconds.")


def wait_for_contract(roster: Roster, names: Collection[str]) -> None:
    """Wait a short time until these clients of a resumed job are connected again."""
    clock = roster.stage(ENROLLING, min(RECONNECT_SECONDS, roster.server.round_seconds))
    while True:
        roster.refresh()
        if all(name in roster.node_of for name in names) or clock.over:
            return
        clock.wait()


def tell_latecomers(roster: Roster, known: Collection[str]) -> None:
    """Tell connected clients that the job runs without them, except those who already know.

    known  names of clients with an offer, or who were told that they get none
    """
    late = [node for name, node in roster.node_of.items() if name not in known]
    if late:
        roster.tell(late, LATE_NEWS, over=True)
