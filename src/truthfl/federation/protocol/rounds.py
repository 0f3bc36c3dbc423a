"""T rounds: the common model goes out, reports come back, those that are reports are added with the contract's weights.

Looks at `enrolment` (who is there), `reports`, `recorder`, `messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from truthfl.federation.protocol.ask_nodes import ask
from truthfl.federation.protocol.enrolment import Roster
from truthfl.federation.protocol.messages import MODEL, PAPER, PARAMS, model_record
from truthfl.federation.protocol.recorder import Recorder, model_digest, read_checkpoint
from truthfl.federation.protocol.reports import report_or_reason
from truthfl.learning.draws import Purpose, bits_at, key, uniform
from truthfl.learning.images import LabeledImages
from truthfl.learning.model import Model, Params
from truthfl.ledger.entry import Item
from truthfl.ledger.terms import Agreement, Offer

LOOKS = 20  # at the model on the way
Refused = tuple[str | None, int | None, str]
"""Client, node, reason; the client is None where the node is nobody's."""


@dataclass(frozen=True, eq=False)
class Course:
    """What is trained, under which agreement, and where the model is kept on the way."""

    model: Model
    agreed: Agreement
    checkpoint: Path

    @property
    def rounds(self) -> int:
        return self.agreed.terms.rounds


def train_rounds(roster: Roster, course: Course, test: LabeledImages, tell: Callable[[int], None]) -> Params:
    """All rounds that are not in the book yet; the final model."""
    params, done = _start(roster, course)
    every = max(1, course.rounds // LOOKS)
    with Recorder(roster.book, course.checkpoint) as recorder:
        for round_ in range(done, course.rounds):
            offers = asked_in(course.agreed, round_)
            params, taken, refused = one_round(roster, course, params, round_, offers)
            said: dict[str, object] = {"round": round_ + 1, "taken": taken, "model": model_digest(params)}
            said |= asked_of(course.agreed, offers)
            if (round_ + 1) % every == 0 or round_ + 1 == course.rounds:
                loss = course.model.loss(params, test.images, test.labels)
                said |= {"loss": loss, "accuracy": course.model.accuracy(params, test.images, test.labels)}
            items = [rejection(roster.job_name, round_ + 1, *one) for one in refused]
            recorder.put(round_ + 1, params, [*items, Item(roster.job_name, "round", str(round_ + 1), said)])
            tell(round_ + 1)
    return params


def asked_in(agreed: Agreement, round_: int) -> tuple[Offer, ...]:
    """Who is asked for a report in this round: everybody with the chance q_i, by the draws that training has too."""
    chance = np.array([offer.client.participation for offer in agreed.offers])
    if chance.min() >= 1.0:
        return agreed.offers
    index = np.array([offer.client.index for offer in agreed.offers])
    drawn = uniform(bits_at(key(agreed.terms.seed, Purpose.AVAILABILITY, index, round_), 0))
    return tuple(offer for offer, there in zip(agreed.offers, drawn < chance, strict=True) if there)


def asked_of(agreed: Agreement, offers: tuple[Offer, ...]) -> dict[str, object]:
    """Whom a round asked, for its row in the ledger; nothing where it asked everybody."""
    return {} if len(offers) == len(agreed.offers) else {"asked": [offer.client.name for offer in offers]}


def one_round(
    roster: Roster, course: Course, params: Params, round_: int, offers: tuple[Offer, ...]
) -> tuple[Params, list[str], list[Refused]]:
    """The model after this round, whose reports were taken, and (client, node, reason) of those that were not."""
    if any(offer.client.name not in roster.node_of for offer in offers):
        roster.look()
    node_of = {offer.client.name: roster.node_of.get(offer.client.name) for offer in offers}
    offer_at = {node_of[offer.client.name]: offer for offer in offers}
    arrays = model_record(params)
    messages = [
        Message(
            RecordDict({MODEL: arrays, PAPER: ConfigRecord({"offer": offer.hash, "round": round_})}),
            dst_node_id=node,
            message_type=MessageType.TRAIN,
        )
        for offer in offers
        if (node := node_of[offer.client.name]) is not None
    ]
    reports: dict[str, Params] = {}
    refused: list[Refused] = []
    for node, reply in ask(roster.grid, messages, timeout=course.agreed.terms.round_seconds):
        offer = offer_at.get(node)
        if offer is None:
            refused.append((None, node, "the node is not in the contract"))
        elif offer.client.name in reports:
            refused.append((offer.client.name, node, "duplicated: it came after another report of hers"))
        else:
            found = report_or_reason(reply, {PARAMS: params}, offer.hash, round_)
            if isinstance(found, str):
                refused.append((offer.client.name, node, found))
            else:
                reports[offer.client.name] = found[PARAMS]
    refused += missing(node_of, set(reports), refused)
    change = np.zeros_like(params)
    for client in (offer.client for offer in offers):
        if client.name in reports:
            change += np.float32(client.weight / client.participation) * (reports[client.name] - params)
    return params + change, [offer.client.name for offer in offers if offer.client.name in reports], refused


def missing(node_of: Mapping[str, int | None], taken: Collection[str], refused: list[Refused]) -> list[Refused]:
    """Those of whom nothing came at all."""
    named = {client for client, _, _ in refused} | set(taken)
    return [
        (client, node, "not connected" if node is None else "no report in time")
        for client, node in node_of.items()
        if client not in named
    ]


def rejection(job: str, round_: int, client: str | None, node: int | None, reason: str) -> Item:
    """The book's row about a report that was not taken."""
    key = f"round/{round_}/{client or node}/{'again' if reason.startswith('duplicated') else 'first'}"
    said = {"stage": "round", "round": round_, "client": client, "reason": reason}
    return Item(job, "rejection", key, said | {"node": None if node is None else str(node)})


def _start(roster: Roster, course: Course) -> tuple[Params, int]:
    """Where the last checkpoint left it, or the beginning."""
    kept = read_checkpoint(course.checkpoint)
    if kept is None:
        return course.model.init(course.agreed.terms.seed), 0
    roster.book.append_all(kept.items)
    return kept.params, kept.rounds
