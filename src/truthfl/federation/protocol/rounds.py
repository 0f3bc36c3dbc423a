"""The training rounds: send the common model, validate the reports, add them with the contract's weights.

Imports `ask_nodes`, `enrolment`, `message_codes`, `messages`, `recorder`, `reports`, `round_entries`, `learning`, the
ledger and Flower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from truthfl.federation.protocol.ask_nodes import ask_nodes
from truthfl.federation.protocol.enrolment import Roster
from truthfl.federation.protocol.message_codes import OPERATOR, array_bytes_digest, with_code
from truthfl.federation.protocol.messages import DOCUMENT, MODEL, PARAMS, model_record
from truthfl.federation.protocol.recorder import Recorder, model_digest, read_checkpoint
from truthfl.federation.protocol.reports import report_or_reason
from truthfl.federation.protocol.round_entries import RoundCall, begin_rounds, round_document
from truthfl.learning.aggregation import combined_change
from truthfl.learning.draws import Purpose, bits_at, key, uniform
from truthfl.learning.images import LabeledImages
from truthfl.learning.model import Model, Params
from truthfl.ledger.entry import Item
from truthfl.ledger.terms import Agreement, Offer

EVALUATIONS = 20  # how often the model is evaluated on the test set during training
Rejection = tuple[str | None, int | None, str]
"""Client, node, reason; the client is None if the node belongs to no client of the contract."""


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """The model to train, the agreement, the path of the checkpoint file, and who takes part.

    taking_part  the agreement with those only who passed the audition; the whole agreement if there was none
    code_keys    by client: the key of the codes of her messages; empty if the offers have no agreement key
    """

    model: Model
    agreement: Agreement
    checkpoint_file: Path
    taking_part: Agreement
    code_keys: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """The number of rounds; 0 if nobody takes part."""
        return self.agreement.terms.rounds if self.taking_part.offers else 0

    @cached_property
    def weights(self) -> dict[str, float]:
        """The weight of each client who takes part, by name."""
        return joint_weights(self.agreement, self.taking_part)


def joint_weights(agreement: Agreement, taking_part: Agreement) -> dict[str, float]:
    """The offers' weights, by client; if not all take part, divided by their sum."""
    weights = {offer.client.name: offer.client.weight for offer in taking_part.offers}
    total = 1.0 if len(taking_part.offers) == len(agreement.offers) else math.fsum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def train_rounds(roster: Roster, training: TrainingRun, test: LabeledImages, progress: Callable[[int], None]) -> Params:
    """Run all rounds that are not in the ledger yet; return the final model.

    progress  called with the number of finished rounds
    """
    params, finished = _initial_state(roster, training)
    if finished == training.rounds:
        return params
    call, digest = begin_rounds(roster.ledger, roster.job_name, finished), model_digest(params)
    evaluate_every = max(1, training.rounds // EVALUATIONS)
    with Recorder(roster.ledger, training.checkpoint_file) as recorder:
        for round_ in range(finished, training.rounds):
            offers = offers_in_round(training.taking_part, round_)
            params, taken, rejected = run_round(roster, training, params, call, offers)
            digests = digest, model_digest(params)
            document = round_document(call, training.taking_part, offers, taken, digests)
            call, digest = call.next(changed=digests[0] != digests[1]), digests[1]
            if (round_ + 1) % evaluate_every == 0 or round_ + 1 == training.rounds:
                loss = training.model.loss(params, test.images, test.labels)
                document |= {"loss": loss, "accuracy": training.model.accuracy(params, test.images, test.labels)}
            items = [rejection_item(roster.job_name, round_ + 1, rejection) for rejection in rejected]
            recorder.put(round_ + 1, params, [*items, Item(roster.job_name, "round", str(round_ + 1), document)])
            progress(round_ + 1)
    return params


def offers_in_round(agreement: Agreement, round_: int) -> tuple[Offer, ...]:
    """The offers of the clients who are asked for a report in this round.

    Each client is drawn with the probability q_i of her offer, by the same draws as in `learning.training`.

    agreement  with those who take part
    """
    probability = np.array([offer.client.participation for offer in agreement.offers])
    if probability.min() >= 1.0:
        return agreement.offers
    index = np.array([offer.client.index for offer in agreement.offers])
    draws = uniform(bits_at(key(agreement.terms.seed, Purpose.AVAILABILITY, index, round_), 0))
    return tuple(offer for offer, drawn in zip(agreement.offers, draws < probability, strict=True) if drawn)


def run_round(
    roster: Roster, training: TrainingRun, params: Params, call: RoundCall, offers: tuple[Offer, ...]
) -> tuple[Params, list[str], list[Rejection]]:
    """Return the model after this round, the names of clients whose reports were taken, and the rejections."""
    if any(offer.client.name not in roster.node_of for offer in offers):
        roster.refresh()
    node_of = {offer.client.name: roster.node_of.get(offer.client.name) for offer in offers}
    offer_at = {node_of[offer.client.name]: offer for offer in offers}
    messages = _training_messages(training, offers, node_of, params, call)
    reports: dict[str, Params] = {}
    rejected: list[Rejection] = []
    for node, reply in ask_nodes(roster.grid, messages, timeout=training.agreement.terms.round_seconds):
        offer = offer_at.get(node)
        if offer is None:
            rejected.append((None, node, "the node is not in the contract"))
        elif offer.client.name in reports:
            rejected.append((offer.client.name, node, "duplicated: it came after another report of hers"))
        else:
            code_key = training.code_keys.get(offer.client.name)
            bound = training.agreement.terms.report_bound
            report = report_or_reason(reply, {PARAMS: params}, call.fields(offer), bound=bound, code_key=code_key)
            if isinstance(report, str):
                rejected.append((offer.client.name, node, report))
            else:
                reports[offer.client.name] = report[PARAMS]
    rejected += missing_reports(node_of, set(reports), rejected)
    taken = [offer.client for offer in offers if offer.client.name in reports]
    weight = np.array([training.weights[client.name] / client.participation for client in taken])
    changes = np.array([reports[client.name] - params for client in taken], dtype=np.float32).reshape(-1, len(params))
    change = combined_change(changes, weight, training.agreement.terms.aggregation)
    return params + change, [client.name for client in taken], rejected


def _training_messages(
    training: TrainingRun, offers: tuple[Offer, ...], node_of: Mapping[str, int | None], params: Params, call: RoundCall
) -> list[Message]:
    arrays = model_record(params)
    arrays_digest = array_bytes_digest(arrays)
    messages = []
    for offer in offers:
        node = node_of[offer.client.name]
        if node is not None:
            fields: dict[str, Any] = dict(call.fields(offer))
            fields = with_code(training.code_keys.get(offer.client.name), OPERATOR, fields, arrays_digest)
            content = RecordDict({MODEL: arrays, DOCUMENT: ConfigRecord(fields)})
            messages.append(Message(content, dst_node_id=node, message_type=MessageType.TRAIN))
    return messages


def missing_reports(
    node_of: Mapping[str, int | None], taken: Collection[str], rejected: list[Rejection]
) -> list[Rejection]:
    """A rejection for each client who sent no reply at all."""
    replied = {client for client, _, _ in rejected} | set(taken)
    return [
        (client, node, "not connected" if node is None else "no report in time")
        for client, node in node_of.items()
        if client not in replied
    ]


def rejection_item(job: str, round_: int, rejection: Rejection) -> Item:
    """The ledger item for a rejected report."""
    client, node, reason = rejection
    key = f"round/{round_}/{client or node}/{'again' if reason.startswith('duplicated') else 'first'}"
    document = {"stage": "round", "round": round_, "client": client, "reason": reason}
    return Item(job, "rejection", key, document | {"node": None if node is None else str(node)})


def _initial_state(roster: Roster, training: TrainingRun) -> tuple[Params, int]:
    """The model and the number of finished rounds: from the last checkpoint, or a new model and 0."""
    checkpoint = read_checkpoint(training.checkpoint_file)
    if checkpoint is None:
        return training.model.init(training.agreement.terms.seed), 0
    roster.ledger.append_all(checkpoint.items)
    return checkpoint.params, checkpoint.rounds
