"""Write receipts to the ledger and send them: at the end of a job, and later to clients who were away then.

A node that has kept its receipt confirms this, and the ledger notes it. Each row is read once. The receipts of a large
job are not all in memory at the same time, because strangers can trigger the reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message

from truthfl.coded_text import coded
from truthfl.errors import InputError
from truthfl.federation.protocol.enrolment import REPLY_TIMEOUT, Roster
from truthfl.federation.protocol.messages import (
    RECEIPT,
    RECEIPTS,
    OpenQuestions,
    ask_nodes,
    document_in,
    query_text_message,
)
from truthfl.ledger.book import Ledger
from truthfl.ledger.canonical import canonical_bytes
from truthfl.ledger.entry import Entry, Item
from truthfl.ledger.job_view import job_view
from truthfl.ledger.receipts import JobReceipts
from truthfl.ledger.signing import PrivateKey
from truthfl.ledger.terms import Offer


@dataclass(eq=False)
class OwedReceipts:
    """The receipts of the same operator's other jobs."""

    ledger: Ledger
    job: str
    _key_of: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)  # by job and client
    _kept: set[tuple[str, str]] = field(default_factory=set, repr=False)
    _read: dict[str, int] = field(default_factory=dict, repr=False)  # by kind: the last row that was read
    _is_own: dict[str, bool] = field(default_factory=dict, repr=False)  # by job

    def update(self) -> None:
        """Read the rows written since the last time."""
        operator = self._operator_of(self.job)
        if operator is None:
            return
        self._kept |= {(entry.job, entry.key) for entry in self._new("acknowledgement")}
        for entry in self._new("receipt"):
            place = entry.job, entry.key
            if entry.job == self.job or place in self._kept:
                continue
            if entry.job not in self._is_own:
                self._is_own[entry.job] = self._operator_of(entry.job) == operator
            enrolled = self.ledger.find(entry.job, "enrolment", entry.key) if self._is_own[entry.job] else None
            if enrolled is not None:
                self._key_of[place] = str(enrolled.document["public_key"])
        for place in self._kept & self._key_of.keys():
            del self._key_of[place]

    def of_key(self, public_key: str) -> list[tuple[str, str]]:
        """Job and client of each receipt that is owed to the owner of this key, oldest first."""
        return [place for place, key in self._key_of.items() if key == public_key]

    @property
    def people(self) -> list[str]:
        """The names of those who are owed a receipt."""
        return list(dict.fromkeys(client for _, client in self._key_of))

    def _new(self, kind: str) -> list[Entry]:
        entries = self.ledger.entries(kind=kind, after=self._read.get(kind, 0))
        if entries:
            self._read[kind] = entries[-1].sequence
        return entries

    def _operator_of(self, job: str) -> str | None:
        opened = self.ledger.find(job, "job", "job")
        return None if opened is None else str(opened.document.get("operator_key"))


MOST_MISSED = 20  # receipts of earlier jobs that are sent to one client at a time
MOST_AT_ONCE = 1000  # receipts that are sent together
SECONDS_BETWEEN_LOOKS = 0.5  # at who is connected, after the job
ONLY_RECEIPTS = coded(
    "news.only_receipts", "You have the receipts of your earlier jobs. The job that runs now does not ask you."
)
LATE_REPLY_SECONDS = 10.0  # after the job, others must not wait long for a silent node


def send_receipts(roster: Roster, key: PrivateKey) -> None:
    """Write every client's receipt of the job to the ledger, and send it to their node if it is connected.

    key  the operator's
    """
    receipts_of_job = _receipts_of(roster.ledger, roster.job_name)
    view = receipts_of_job.view
    offers = view.agreement.offers if view.agreement is not None else ()
    rows = [receipts_of_job.row(offer, key) for offer in offers]
    roster.ledger.append_all([Item(roster.job_name, "receipt", row["client"], row) for row in rows])
    _deliver(roster, [_Receipt(receipts_of_job, offer, row) for offer, row in zip(offers, rows, strict=True)])


def owed_receipts(ledger: Ledger, job: str) -> list[str]:
    """Clients whose nodes have not confirmed a receipt of this job or an earlier one of its operator."""
    earlier = OwedReceipts(ledger, job)
    earlier.update()
    return list(dict.fromkeys([*without_receipt(ledger, job), *earlier.people]))


def without_receipt(ledger: Ledger, job: str) -> list[str]:
    """Clients whose nodes have not confirmed their receipt of this job, which is in the ledger."""
    kept = {entry.key for entry in ledger.entries(job, "acknowledgement")}
    return [entry.key for entry in ledger.entries(job, "receipt") if entry.key not in kept]


def deliver_late(roster: Roster, seconds: float, told: Callable[[str], None]) -> None:
    """Send the receipts of a finished job to connecting clients without one, until all have one or time is up.

    This also waits for receipts of earlier jobs.

    told  called with the name of each client who got one
    """
    deadline, receipts_of_job = time.monotonic() + seconds, _receipts_of(roster.ledger, roster.job_name)
    view = receipts_of_job.view
    assert view.agreement is not None
    offer_to = {offer.client.name: offer for offer in view.agreement.offers}
    waiting = without_receipt(roster.ledger, roster.job_name)
    owed = OwedReceipts(roster.ledger, roster.job_name)
    owed.update()
    earlier = owed.people
    while (waiting or earlier) and time.monotonic() < deadline:
        roster.refresh()
        owed.update()
        for name in set(earlier) - set(owed.people):
            told(name)
        earlier = owed.people
        there = [name for name in waiting if name in roster.node_of]
        if there:
            for name in there:
                receipts_of_job.recorded(offer_to[name])  # an error if it is not the one that was signed
            _deliver(
                roster,
                [_Receipt(receipts_of_job, offer_to[name], view.receipts[name].document) for name in there],
                LATE_REPLY_SECONDS,
            )
            still = without_receipt(roster.ledger, roster.job_name)
            for name in set(waiting) - set(still):
                told(name)
            waiting = still
        time.sleep(SECONDS_BETWEEN_LOOKS if waiting or earlier else 0.0)


class MissedReceipts:
    """Sends receipts of earlier jobs to connecting clients who have not confirmed them; nobody waits for that.

    `Roster.refresh` calls it. Clients who are connected only for these are told when there are no more.
    """

    def __init__(self, roster: Roster) -> None:
        self.roster, self.questions = roster, OpenQuestions(roster.grid)
        self.owed = OwedReceipts(roster.ledger, roster.job_name)
        self._waiting: dict[int, list[_Receipt]] = {}  # by node
        self._sent: dict[int, _Receipt] = {}  # one at a time for each node, so that it is clear what a reply is about
        self._guests: set[int] = set()

    def __call__(self, key_of: Mapping[int, str], guests: Collection[int]) -> None:
        """Handle confirmations, and send the receipts owed to these nodes, by the public key that each has proved.

        guests  those of them that are connected for receipts alone
        """
        replies = self.questions.replies()
        kept = [self._sent[node] for node, reply in replies if node in self._sent and _says_kept(reply)]
        self.roster.ledger.append_all([one.acknowledgement() for one in kept])
        asked = self.questions.nodes
        self._sent = {node: one for node, one in self._sent.items() if node in asked}
        if key_of:
            self.owed.update()
            self._guests |= set(guests)
            self._waiting |= {node: self._receipts_to(key) for node, key in key_of.items()}
        for node, waiting in list(self._waiting.items()):
            if node in self._sent:
                continue
            if waiting:
                self._sent[node] = waiting.pop(0)
                self.questions.send([self._sent[node].message(node)], REPLY_TIMEOUT)
                continue
            del self._waiting[node]
            if node in self._guests:
                self._guests.discard(node)
                self.roster.tell([node], ONLY_RECEIPTS, over=True, about=RECEIPTS)

    def finish(self) -> None:
        """Wait until connected clients have confirmed their receipts or are too late."""
        deadline = time.monotonic() + REPLY_TIMEOUT
        self({}, ())
        while self._sent and (seconds_left := deadline - time.monotonic()) > 0:
            self.questions.wait_for_some(seconds_left)
            self({}, ())

    def _receipts_to(self, public_key: str) -> list[_Receipt]:
        receipts = []
        for job, client in self.owed.of_key(public_key)[-MOST_MISSED:]:
            receipts_of_job = _receipts_of(self.roster.ledger, job)
            view = receipts_of_job.view
            for offer in view.agreement.offers if view.agreement is not None else ():
                if (offer.client.name, offer.client.public_key) == (client, public_key):
                    receipts_of_job.recorded(offer)  # an error if it is not the one that was signed
                    receipts.append(_Receipt(receipts_of_job, offer, view.receipts[client].document))
        return receipts


def _receipts_of(ledger: Ledger, job: str) -> JobReceipts:
    """The receipts of this job; of other jobs in the ledger, only rows since it began are read."""
    own = ledger.entries(job)
    since = ledger.rows(after=own[0].sequence - 1) if own else []
    return JobReceipts(job_view(job, own), since)


@dataclass(frozen=True, eq=False)
class _Receipt:
    """A receipt to be sent; it is made when it is sent.

    row  the ledger's
    """

    receipts_of_job: JobReceipts
    offer: Offer
    row: Mapping[str, Any]

    def message(self, node: int) -> Message:
        document = self.receipts_of_job.document(self.offer, self.offer.job.operator_key)
        signed = canonical_bytes({"document": document, "signature": self.row["signature"]})
        return query_text_message(RECEIPT, node, signed.decode())

    def acknowledgement(self) -> Item:
        client = self.offer.client.name
        return Item(
            self.offer.job.name, "acknowledgement", client, {"client": client, "receipt": str(self.row["digest"])}
        )


def _deliver(roster: Roster, receipts: Sequence[_Receipt], seconds: float = REPLY_TIMEOUT) -> None:
    """Send receipts to nodes that are connected, in batches that fit in memory; note which were kept."""
    of_node: dict[int, list[_Receipt]] = {}
    for one in receipts:
        if one.offer.client.name in roster.node_of:
            of_node.setdefault(roster.node_of[one.offer.client.name], []).append(one)
    while of_node:  # one at a time for each node, so that it is clear which one a reply is about
        sent = {node: waiting.pop() for node, waiting in of_node.items()}
        nodes = list(sent)
        for start in range(0, len(nodes), MOST_AT_ONCE):
            messages = [sent[node].message(node) for node in nodes[start : start + MOST_AT_ONCE]]
            replies = ask_nodes(roster.grid, messages, timeout=seconds)
            kept = [node for node, reply in replies if node in sent and _says_kept(reply)]
            roster.ledger.append_all([sent[node].acknowledgement() for node in dict.fromkeys(kept)])
        of_node = {node: waiting for node, waiting in of_node.items() if waiting}


def _says_kept(reply: Message) -> bool:
    try:
        return not reply.has_error() and document_in(reply).get("kept") is True
    except InputError:
        return False
