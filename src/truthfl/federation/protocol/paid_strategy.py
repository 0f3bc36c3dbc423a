"""`PaidStrategy`: wraps the strategy of any Flower app and runs it under a contract.

Imports the stages (`enrolment`, `offers`, `rounds`, `final_model`, `server`), `message_codes`, `messages`,
`pay_limits`, `promise`, `record_digests`, `recorder`, `reports`, `round_entries`, `job`, `learning.draws`, the ledger,
`mechanism.observation` and Flower.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.federation.protocol.enrolment import Roster, wait_for_clients
from truthfl.federation.protocol.final_model import tell_final_model
from truthfl.federation.protocol.message_codes import OPERATOR, codes_with_participants, with_code
from truthfl.federation.protocol.messages import DOCUMENT, MODEL, arrays_digest
from truthfl.federation.protocol.offers import reach_agreement, wait_for_labels
from truthfl.federation.protocol.pay_limits import require_within_limits
from truthfl.federation.protocol.promise import Opening, Promise, TrainingTask, agreement_of
from truthfl.federation.protocol.receipt_delivery import send_missed_receipts, send_receipts
from truthfl.federation.protocol.record_digests import array_bytes_digest
from truthfl.federation.protocol.recorder import Recorder
from truthfl.federation.protocol.reports import AnyArray, report_or_reason
from truthfl.federation.protocol.round_entries import begin_rounds, round_document
from truthfl.federation.protocol.round_outcome import Rejection, missing_reports, rejection_item
from truthfl.federation.protocol.rounds import offers_in_round
from truthfl.federation.protocol.server import Operator
from truthfl.job import ServerSettings
from truthfl.learning.draws import Purpose, below, bits, key
from truthfl.ledger.agreement_keys import agreement_line
from truthfl.ledger.canonical import digest
from truthfl.ledger.commitment import commitment, draw_seed
from truthfl.ledger.entry import Item
from truthfl.ledger.job_view import job_view
from truthfl.ledger.settlement import Settled, settle
from truthfl.ledger.signing import public_line
from truthfl.ledger.terms import Agreement, Offer
from truthfl.mechanism.observation import Evidence

WEIGHT = "num-examples"
Metrics = dict[str, int | float | list[int] | list[float]]


@dataclass(frozen=True, eq=False)
class Test:
    """The test of the final model.

    digest   a hash of the test set, which is published after the job
    size     the number of its samples
    draws    the number of samples drawn from it, with replacement, for the loss that pay depends on
    loss     computes the mean loss of a model over the samples at the given positions
    classes  the names of the classes that clients label with, for the offer
    """

    digest: str
    size: int
    draws: int
    loss: Callable[[ArrayRecord, NDArray[np.int64]], float]
    classes: tuple[str, ...] = ()


class PaidStrategy(Strategy):
    """A strategy that delegates to another one, under a contract.

    Before training, clients enrol and sign offers. Every training message carries the assignment; replies are
    validated and get the contract's weights. After training, the model is tested, pay is settled and receipts are sent.

    strategy  the wrapped strategy
    names     of the clients
    promise   called with the names of the enrolled clients; returns their contract
    server    deadlines and currency; defaults if None
    """

    def __init__(
        self,
        strategy: Strategy,
        names: Iterable[str],
        promise: Callable[[tuple[str, ...]], Promise],
        test: Test,
        operator: Operator,
        server: ServerSettings | None = None,
    ) -> None:
        fraction = getattr(strategy, "fraction_train", 1.0)
        if fraction != 1.0:
            raise InputError(f"fraction_train is {fraction:g}; a contract asks everybody in every round: it must be 1.")
        self.weight_key = getattr(strategy, "weighted_by_key", WEIGHT)
        self.strategy, self.promise, self.test, self.operator = strategy, promise, test, operator
        self.names, self.server = tuple(names), server or ServerSettings(test_samples=test.draws)
        self.settled: list[Settled] = []
        self.sent: dict[str, AnyArray] = {}  # the arrays sent in the current round
        self.offer_at: dict[int, Offer] = {}  # by node, for the clients asked in the current round

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Result:
        """Run the whole job: offers, training by the wrapped strategy, test, settlement, receipts.

        timeout  seconds to wait for the reports of a round, also stated in the offers; `server.round_seconds` if None
        """
        self.server = replace(self.server, round_seconds=timeout or self.server.round_seconds)
        ledger, self.job = self.operator.ledger, self._new_job_name()
        test_commitment = commitment(self.test.digest, self.test.draws, self.operator.secret)
        agreement_key = self.operator.agreement_key(self.job)
        keys = public_line(self.operator.key), agreement_line(agreement_key)
        opening = Opening(self.operator.seed, test_commitment, *keys)
        ledger.append(self.job, "job", "job", {"job": {"clients": {"name": list(self.names)}}, **opening.document()})
        self.roster = Roster(grid, ledger, self.job, self.names, self.server, None, self.operator.authenticated)
        wait_for_clients(self.roster)
        self.agreement = reach_agreement(
            self.roster,
            lambda names, version: self._make_offers(tuple(names), version, num_rounds, opening),
            self.operator.key,
            self.operator.approve,
        )
        self.code_keys = codes_with_participants(agreement_key, job_view(self.job, ledger.entries(self.job)))
        clients = [offer.client for offer in self.agreement.offers]
        self.weight = {client.name: client.weight / client.participation for client in clients}
        wait_for_labels(self.roster, self.agreement, lambda _: None)
        self.call, self.digest = begin_rounds(ledger, self.job, 0), arrays_digest(initial_arrays)
        with Recorder(ledger, None) as self.recorder:
            result = super().start(grid, initial_arrays, num_rounds, self.server.round_seconds, *args, **kwargs)
        tell_final_model(self.roster, self.agreement, arrays_digest(result.arrays))
        drawn = below(bits(key(draw_seed(self.operator.secret), Purpose.TEST), self.test.draws), self.test.size)
        loss = float(self.test.loss(result.arrays, drawn))
        if not math.isfinite(loss):
            raise InputError("the final model has no finite loss; such a job cannot be settled.")
        document = {"model": arrays_digest(result.arrays), "test_set": self.test.digest, "samples": self.test.draws}
        document |= {"secret": self.operator.secret, "loss": loss, "accuracy": None}
        ledger.append(self.job, "test", "test", document)
        self.settled = settle(ledger, self.job)
        send_receipts(self.roster, self.operator.key)
        send_missed_receipts(self.roster)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.offers = offers_in_round(self.agreement, server_round - 1)
        if any(offer.client.name not in self.roster.node_of for offer in self.offers):
            self.roster.refresh()
        self.sent = {name: array.numpy() for name, array in arrays.items()}
        self.arrays, self.offer_at = arrays, {}
        name_of = {node: name for name, node in self.roster.node_of.items()}
        offer_to = {offer.client.name: offer for offer in self.offers}
        messages = []
        for message in self.strategy.configure_train(server_round, arrays, config, grid):
            node = message.metadata.dst_node_id
            offer = offer_to.get(name_of.get(node, ""))
            if offer is not None and node not in self.offer_at:
                self.offer_at[node] = offer
                messages.append(self._with_assignment(message, offer))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        taken: dict[str, Message] = {}
        rejected: list[Rejection] = []
        for reply in replies:
            node = reply.metadata.src_node_id
            offer = self.offer_at.get(node)
            if offer is None:
                rejected += [] if reply.has_error() else [(None, node, "the node is not in the contract")]
            elif offer.client.name in taken:
                rejected.append((offer.client.name, node, "duplicated: it came after another report of hers"))
            else:
                code_key = self.code_keys.get(offer.client.name)
                bound = self.agreement.terms.report_bound
                report = report_or_reason(
                    reply, self.sent, self.call.fields(offer), bound=bound, code_key=code_key, metrics=True
                )
                if isinstance(report, str):
                    rejected.append((offer.client.name, node, report))
                else:
                    taken[offer.client.name] = reply
        node_of = {offer.client.name: self.roster.node_of.get(offer.client.name) for offer in self.offers}
        rejected += missing_reports(node_of, taken, rejected)
        arrays, metrics = (
            (None, None) if not taken else self.strategy.aggregate_train(server_round, self._weighted_replies(taken))
        )
        arrays = self.arrays if arrays is None else self._with_sent_dtypes(arrays)
        digests = self.digest, arrays_digest(arrays)
        document = round_document(self.call, self.agreement, self.offers, taken, digests)
        self.call, self.digest = self.call.next(changed=digests[0] != digests[1]), digests[1]
        items = [rejection_item(self.job, server_round, rejection) for rejection in rejected]
        no_params = np.empty(0, dtype=np.float32)  # there are no checkpoints
        self.recorder.put(server_round, no_params, [*items, Item(self.job, "round", str(server_round), document)])
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        connected = {self.roster.node_of.get(offer.client.name) for offer in self.agreement.offers}
        messages = self.strategy.configure_evaluate(server_round, arrays, config, grid)
        return [message for message in messages if message.metadata.dst_node_id in connected]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        name_of = {node: name for name, node in self.roster.node_of.items()}
        reply_of: dict[str, Message] = {}
        for reply in replies:
            name = name_of.get(reply.metadata.src_node_id, "")
            if name in self.weight and not reply.has_error():
                reply_of.setdefault(name, reply)
        metrics, _ = self._weighted_metrics(reply_of)
        weighted = [
            _reply_with(RecordDict({"metrics": metrics[name]}), reply.metadata.src_node_id, reply)
            for name, reply in reply_of.items()
        ]
        return self.strategy.aggregate_evaluate(server_round, weighted) if weighted else None

    def summary(self) -> None:
        self.strategy.summary()

    def _new_job_name(self) -> str:
        stem = digest({"names": list(self.names), "test": self.test.digest, "draws": self.test.draws})[:12]
        number = 1
        while self.operator.ledger.entries(f"{stem}-{number}"):
            number += 1
        return f"{stem}-{number}"

    def _with_assignment(self, message: Message, offer: Offer) -> Message:
        """The wrapped strategy's message with the offer's hash and the round added."""
        if set(message.content.array_records) != {MODEL}:
            raise InputError(
                f"the strategy sends {sorted(message.content.array_records)}; it must send {MODEL!r} alone."
            )
        arrays = message.content.array_records[MODEL]
        fields: dict[str, Any] = dict(self.call.fields(offer))
        fields = with_code(self.code_keys.get(offer.client.name), OPERATOR, fields, array_bytes_digest(arrays))
        content = RecordDict(dict(message.content) | {DOCUMENT: ConfigRecord(fields)})
        return Message(content, dst_node_id=message.metadata.dst_node_id, message_type=message.metadata.message_type)

    def _weighted_replies(self, taken: Mapping[str, Message]) -> list[Message]:
        """The taken replies with the contract's weights, and one reply with the sent model and the missing weight.

        The weighted average of all is then the sent model plus the weighted changes, however many reports are missing.
        """
        metrics, mean = self._weighted_metrics(taken)
        weighted = []
        for name, reply in taken.items():
            content = RecordDict({MODEL: reply.content.array_records[MODEL], "metrics": metrics[name]})
            weighted.append(_reply_with(content, reply.metadata.src_node_id, reply))
        missing_weight = 1.0 - math.fsum(self.weight[name] for name in taken)
        if abs(missing_weight) >= 1e-9:
            metric = MetricRecord({self.weight_key: missing_weight} | mean)
            content = RecordDict({MODEL: self.arrays, "metrics": metric})
            weighted.append(_reply_with(content, 0, next(iter(taken.values()))))
        return weighted

    def _weighted_metrics(self, reply_of: Mapping[str, Message]) -> tuple[dict[str, MetricRecord], Metrics]:
        """By client: the contract's weight and the metrics that most replies have; and the weighted means of these.

        A reply without one of these metrics gets the mean, which changes no average.
        """
        numbers = {name: _finite_metrics(reply.content) for name, reply in reply_of.items()}
        count, mean = Counter(field for own in numbers.values() for field in own), Metrics()
        for field in [field for field in count if field != self.weight_key and 2 * count[field] > len(reply_of)]:
            having = [name for name, own in numbers.items() if field in own]
            weight = [self.weight[name] for name in having]
            mean[field] = float(np.average([numbers[name][field] for name in having], weights=weight))
        records = {
            name: MetricRecord({self.weight_key: self.weight[name]} | mean | {f: own[f] for f in mean if f in own})
            for name, own in numbers.items()
        }
        return records, mean

    def _with_sent_dtypes(self, arrays: ArrayRecord) -> ArrayRecord:
        """Convert arrays back to the dtypes that were sent; averages of integers are floats."""
        return ArrayRecord(
            {name: Array(array.numpy().astype(self.sent[name].dtype, copy=False)) for name, array in arrays.items()}
        )

    def _make_offers(
        self, names: tuple[str, ...], version: int, rounds: int, opening: Opening
    ) -> tuple[dict[str, Any], Agreement]:
        promise = self.promise(names)
        clients, training = promise.clients, promise.training
        if Evidence.SOLO_LOSS in promise.contract.needs:
            raise InputError(
                f"the contract {promise.contract.kind!r} pays by models that clients train alone, which a Flower app "
                "of one's own does not; the promise must be of another contract, such as LCEME."
            )
        if clients.name != names or training.rounds != rounds:
            raise InputError(f"the promise is to {clients.name} for {training.rounds} rounds, not {names}, {rounds}.")
        require_within_limits(promise, self.server)
        task = TrainingTask({"kind": "flower app"}, (), self.test.classes, self.test.draws)
        losses = {"expected_loss": promise.expected_loss, "loss_error": promise.loss_error}
        return {"step_size": training.step_size, **losses}, agreement_of(promise, self.roster, opening, task, version)


def _finite_metrics(content: RecordDict) -> dict[str, int | float]:
    """The metrics of a reply that are single finite numbers."""
    metrics = next(iter(content.metric_records.values()), MetricRecord())
    return {field: value for field, value in metrics.items() if isinstance(value, int | float) and math.isfinite(value)}


def _reply_with(content: RecordDict, node: int, reply: Message) -> Message:
    """A copy of a reply with other content and source node; Flower would swap source and destination."""
    copy = Message(content, reply_to=reply)
    vars(copy.metadata).update(_src_node_id=node, _dst_node_id=reply.metadata.dst_node_id)
    return copy
