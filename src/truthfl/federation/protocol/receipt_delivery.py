"""Write receipts to the ledger and send them: at the end of a job, and to those who were away then when they join next.

A node that has kept its receipt says so; that is noted in the ledger. Imports `ask_nodes`, `enrolment`, `messages`,
the ledger and Flower.
"""

from __future__ import annotations

from typing import Any

from flwr.app import Message

from truthfl.errors import InputError
from truthfl.federation.protocol.ask_nodes import ask_nodes
from truthfl.federation.protocol.enrolment import REPLY_TIMEOUT, Roster
from truthfl.federation.protocol.messages import RECEIPT, document_in, query_message
from truthfl.ledger.canonical import digest
from truthfl.ledger.entry import Item
from truthfl.ledger.job_view import job_view
from truthfl.ledger.receipts import make_receipt, recorded_receipt
from truthfl.ledger.signing import PrivateKey

MOST_MISSED = 20  # receipts of earlier jobs that are sent to one client at a time


def send_receipts(roster: Roster, key: PrivateKey) -> None:
    """Write every client's receipt of the job to the ledger, and send it to her node if it is connected.

    key  the operator's
    """
    entries = roster.ledger.entries()
    view = job_view(roster.job_name, [entry for entry in entries if entry.job == roster.job_name])
    receipts = []
    for offer in view.agreement.offers if view.agreement is not None else ():
        receipt, client = make_receipt(offer, view, entries, key), offer.client.name
        document = {"client": client, "digest": digest(receipt["document"]), "signature": receipt["signature"]}
        roster.ledger.append(roster.job_name, "receipt", client, document)
        receipts.append((roster.job_name, client, receipt))
    _deliver(roster, receipts)


def send_missed_receipts(roster: Roster) -> None:
    """Send connected clients those receipts of earlier jobs that their nodes have not said to have kept."""
    kept = {(entry.job, entry.key) for entry in roster.ledger.entries(kind="acknowledgement")}
    missed: dict[str, list[str]] = {}
    for entry in roster.ledger.entries(kind="receipt"):
        if entry.job != roster.job_name and (entry.job, entry.key) not in kept and entry.key in roster.node_of:
            missed.setdefault(entry.key, []).append(entry.job)
    wanted = {(job, client) for client, jobs in missed.items() for job in jobs[-MOST_MISSED:]}
    if not wanted:
        return
    entries = roster.ledger.entries()
    receipts = []
    for job in {job for job, _ in wanted}:
        view = job_view(job, [entry for entry in entries if entry.job == job])
        for offer in view.agreement.offers if view.agreement is not None else ():
            client = offer.client.name
            same_key = roster.descriptions.get(client, {}).get("public_key") == offer.client.public_key
            if (job, client) in wanted and same_key:
                receipts.append((job, client, recorded_receipt(offer, view, entries)))
    _deliver(roster, receipts)


def _deliver(roster: Roster, receipts: list[tuple[str, str, dict[str, Any]]]) -> None:
    """Send receipts, given with job and client, to nodes that are connected; note which were kept."""
    of_node: dict[int, list[tuple[str, str, dict[str, Any]]]] = {}
    for one in receipts:
        if one[1] in roster.node_of:
            of_node.setdefault(roster.node_of[one[1]], []).append(one)
    while of_node:  # one at a time for each node, so that it is clear which one a reply is about
        sent = {node: waiting.pop() for node, waiting in of_node.items()}
        messages = [query_message(RECEIPT, node, receipt) for node, (_, _, receipt) in sent.items()]
        items = []
        for node, reply in ask_nodes(roster.grid, messages, timeout=REPLY_TIMEOUT):
            if node in sent and not reply.has_error() and _says_kept(reply):
                job, client, receipt = sent[node]
                document = {"client": client, "receipt": digest(receipt["document"])}
                items.append(Item(job, "acknowledgement", client, document))
        roster.ledger.append_all(items)
        of_node = {node: waiting for node, waiting in of_node.items() if waiting}


def _says_kept(reply: Message) -> bool:
    try:
        return document_in(reply).get("kept") is True
    except InputError:
        return False
