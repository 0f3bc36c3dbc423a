"""Somebody's own Flower app, paid: a strategy around hers, which does what hers does, under a contract.

Looks at the protocol's stages (`enrolment`, `offers`), `reports`, `recorder`, and the ledger.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.federation.protocol.enrolment import Roster, wait_for_clients
from truthfl.federation.protocol.messages import MODEL, PAPER
from truthfl.federation.protocol.offers import agree, wait_for_labels
from truthfl.federation.protocol.promise import Opening, Promise, TrainingTask, agreement_of
from truthfl.federation.protocol.recorder import Recorder
from truthfl.federation.protocol.reports import AnyArray, report_or_reason
from truthfl.federation.protocol.rounds import asked_in, asked_of, missing, rejection
from truthfl.federation.protocol.server import Operator, hand_out
from truthfl.job import ServerSettings
from truthfl.learning.draws import Purpose, below, bits, key
from truthfl.ledger.canonical import digest
from truthfl.ledger.commitment import commitment, draw_seed
from truthfl.ledger.entry import Item
from truthfl.ledger.settlement import Settled, settle
from truthfl.ledger.signing import public_line
from truthfl.ledger.terms import Agreement, Offer

WEIGHT = "num-examples"
Metrics = dict[str, int | float | list[int] | list[float]]


@dataclass(frozen=True, eq=False)
class Test:
    """How the final model is tested.

    digest   a hash of the test set, which is published after the job
    size     how many samples it has
    draws    how many of them, with replacement, settle the pay
    loss     the mean loss of a model over the samples at these positions
    classes  what clients label into, for the offer
    """

    digest: str
    size: int
    draws: int
    loss: Callable[[ArrayRecord, NDArray[np.int64]], float]
    classes: tuple[str, ...] = ()


class PaidStrategy(Strategy):
    """A strategy that does what another does, under a contract.

    Clients enrol, are made offers and sign; every training message carries the assignment; replies are checked, and
    weighed by the contract; at the end the model is tested, and everybody has her pay and her receipt. `promise` makes
    the contract for those who take part.
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
        self.sent: dict[str, AnyArray] = {}
        self.asked: dict[int, Offer] = {}

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float | None = None,
        *args: Any,
        **more: Any,
    ) -> Result:
        """The whole job: what the wrapped strategy's `start` does, between the offers and the pay.

        `timeout` is how long a report is waited for, and stands in the offers; if not given, it is the server's.
        """
        self.server = replace(self.server, round_seconds=timeout or self.server.round_seconds)
        self.job = self._new_job()
        committed = commitment(self.test.digest, self.test.draws, self.operator.secret)
        opening = Opening(self.operator.seed, committed, public_line(self.operator.key))
        described = {"job": {"clients": {"name": list(self.names)}}, **asdict(opening)}
        self.operator.book.append(self.job, "job", "job", described)
        self.roster = Roster(
            grid, self.operator.book, self.job, self.names, self.server, None, self.operator.authenticated
        )
        wait_for_clients(self.roster)
        self.agreed = agree(
            self.roster, lambda names, version: self._offered(tuple(names), version, num_rounds, opening)
        )
        clients = [offer.client for offer in self.agreed.offers]
        self.weight = {client.name: client.weight / client.participation for client in clients}
        wait_for_labels(self.roster, self.agreed, lambda _: None)
        with Recorder(self.operator.book, None) as self.recorder:
            result = super().start(grid, initial_arrays, num_rounds, self.server.round_seconds, *args, **more)
        drawn = below(bits(key(draw_seed(self.operator.secret), Purpose.TEST), self.test.draws), self.test.size)
        loss = float(self.test.loss(result.arrays, drawn))
        if not math.isfinite(loss):
            raise InputError("the final model has no finite loss; such a job cannot be settled.")
        said = {"model": arrays_digest(result.arrays), "test_set": self.test.digest, "samples": self.test.draws}
        said |= {"secret": self.operator.secret, "loss": loss, "accuracy": None}
        self.operator.book.append(self.job, "test", "test", said)
        self.settled = settle(self.operator.book, self.job)
        hand_out(self.roster, self.job, self.operator)
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.offers = asked_in(self.agreed, server_round - 1)
        if any(offer.client.name not in self.roster.node_of for offer in self.offers):
            self.roster.look()
        self.round, self.sent = server_round, {name: array.numpy() for name, array in arrays.items()}
        self.arrays, self.asked = arrays, {}
        of_node = {node: name for name, node in self.roster.node_of.items()}
        by_name = {offer.client.name: offer for offer in self.offers}
        messages = []
        for message in self.strategy.configure_train(server_round, arrays, config, grid):
            node = message.metadata.dst_node_id
            offer = by_name.get(of_node.get(node, ""))
            if offer is not None and node not in self.asked:
                self.asked[node] = offer
                messages.append(self._assigned(message, offer))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        taken: dict[str, Message] = {}
        refused: list[tuple[str | None, int | None, str]] = []
        for reply in replies:
            node = reply.metadata.src_node_id
            offer = self.asked.get(node)
            if offer is None:
                refused += [] if reply.has_error() else [(None, node, "the node is not in the contract")]
            elif offer.client.name in taken:
                refused.append((offer.client.name, node, "duplicated: it came after another report of hers"))
            else:
                found = report_or_reason(reply, self.sent, offer.hash, server_round - 1, metrics=True)
                if isinstance(found, str):
                    refused.append((offer.client.name, node, found))
                else:
                    taken[offer.client.name] = reply
        refused += missing(
            {offer.client.name: self.roster.node_of.get(offer.client.name) for offer in self.offers}, taken, refused
        )
        arrays, metrics = (
            (None, None) if not taken else self.strategy.aggregate_train(server_round, self._weighed(taken))
        )
        arrays = self.arrays if arrays is None else self._as_sent(arrays)
        names = [offer.client.name for offer in self.offers if offer.client.name in taken]
        said = {"round": server_round, "taken": names, "model": arrays_digest(arrays)}
        said |= asked_of(self.agreed, self.offers)
        items = [rejection(self.job, server_round, *one) for one in refused]
        nothing = np.empty(0, dtype=np.float32)
        self.recorder.put(server_round, nothing, [*items, Item(self.job, "round", str(server_round), said)])
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        there = {self.roster.node_of.get(offer.client.name) for offer in self.agreed.offers}
        wanted = self.strategy.configure_evaluate(server_round, arrays, config, grid)
        return [message for message in wanted if message.metadata.dst_node_id in there]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        name_of = {node: name for name, node in self.roster.node_of.items()}
        told: dict[str, Message] = {}
        for reply in replies:
            name = name_of.get(reply.metadata.src_node_id, "")
            if name in self.weight and not reply.has_error():
                told.setdefault(name, reply)
        metrics, _ = self._metrics(told)
        weighed = [
            _from(reply.metadata.src_node_id, RecordDict({"metrics": metrics[name]}), reply)
            for name, reply in told.items()
        ]
        return self.strategy.aggregate_evaluate(server_round, weighed) if weighed else None

    def summary(self) -> None:
        self.strategy.summary()

    def _new_job(self) -> str:
        stem = digest({"names": list(self.names), "test": self.test.digest, "draws": self.test.draws})[:12]
        number = 1
        while self.operator.book.entries(f"{stem}-{number}"):
            number += 1
        return f"{stem}-{number}"

    def _assigned(self, message: Message, offer: Offer) -> Message:
        """The wrapped strategy's message, with the assignment."""
        if set(message.content.array_records) != {MODEL}:
            raise InputError(
                f"the strategy sends {sorted(message.content.array_records)}; it must send {MODEL!r} alone."
            )
        paper = ConfigRecord({"offer": offer.hash, "round": self.round - 1})
        content = RecordDict(dict(message.content) | {PAPER: paper})
        return Message(content, dst_node_id=message.metadata.dst_node_id, message_type=message.metadata.message_type)

    def _weighed(self, taken: Mapping[str, Message]) -> list[Message]:
        """The replies with the contract's weights; for those who are missing, the model as it was sent.

        So an average over the replies is the old model plus the weighted changes, however many are missing.
        """
        metrics, mean = self._metrics(taken)
        weighed = []
        for name, reply in taken.items():
            content = RecordDict({MODEL: reply.content.array_records[MODEL], "metrics": metrics[name]})
            weighed.append(_from(reply.metadata.src_node_id, content, reply))
        absent = 1.0 - math.fsum(self.weight[name] for name in taken)
        if abs(absent) >= 1e-9:
            content = RecordDict({MODEL: self.arrays, "metrics": MetricRecord({self.weight_key: absent} | mean)})
            weighed.append(_from(0, content, next(iter(taken.values()))))
        return weighed

    def _metrics(self, told: Mapping[str, Message]) -> tuple[dict[str, MetricRecord], Metrics]:
        """The contract's weights with the metrics that most replies have, and these metrics' means.

        A reply that lacks one of them gets its mean, which changes no average.
        """
        numbers = {name: _numbers(reply.content) for name, reply in told.items()}
        count, mean = Counter(field for own in numbers.values() for field in own), Metrics()
        for field in [field for field in count if field != self.weight_key and 2 * count[field] > len(told)]:
            having = [name for name, own in numbers.items() if field in own]
            weight = [self.weight[name] for name in having]
            mean[field] = float(np.average([numbers[name][field] for name in having], weights=weight))
        records = {
            name: MetricRecord({self.weight_key: self.weight[name]} | mean | {f: own[f] for f in mean if f in own})
            for name, own in numbers.items()
        }
        return records, mean

    def _as_sent(self, arrays: ArrayRecord) -> ArrayRecord:
        """The same numbers in the types that went out; averages of whole numbers are none."""
        return ArrayRecord(
            {name: Array(array.numpy().astype(self.sent[name].dtype, copy=False)) for name, array in arrays.items()}
        )

    def _offered(
        self, names: tuple[str, ...], version: int, rounds: int, opening: Opening
    ) -> tuple[dict[str, Any], Agreement]:
        made = self.promise(names)
        if made.clients.name != names or made.training.rounds != rounds:
            raise InputError(
                f"the promise is to {made.clients.name} for {made.training.rounds} rounds, not {names}, {rounds}."
            )
        task = TrainingTask({"kind": "flower app"}, (), self.test.classes, self.test.draws)
        rests_on = {
            "step_size": made.training.step_size,
            "expected_loss": made.expected_loss,
            "loss_error": made.loss_error,
        }
        return rests_on, agreement_of(made, self.roster, opening, task, version)


def arrays_digest(arrays: ArrayRecord) -> str:
    """A hash of a model's arrays, with their names and shapes."""
    whole = sha256()
    for name, array in arrays.items():
        numbers = np.ascontiguousarray(array.numpy())
        whole.update(f"{name} {numbers.dtype.str} {numbers.shape};".encode() + numbers.tobytes())
    return whole.hexdigest()


def _numbers(content: RecordDict) -> dict[str, int | float]:
    """What a reply says of itself, where that is one finite number."""
    said = next(iter(content.metric_records.values()), MetricRecord())
    return {field: one for field, one in said.items() if isinstance(one, int | float) and math.isfinite(one)}


def _from(node: int, content: RecordDict, like: Message) -> Message:
    """The same reply with other contents; Flower makes replies for the other direction only."""
    made = Message(content, reply_to=like)
    vars(made.metadata).update(_src_node_id=node, _dst_node_id=like.metadata.dst_node_id)
    return made
