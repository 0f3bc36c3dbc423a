"""Reduces a federation of many clients to a few dozen: some single clients, the others merged into groups.

The objective Σ p_i F_i stays the same. A group has the total weight of its members and draws its batches from all their
samples. So the noise of the common gradient is still Σ p²σ²/D, over fewer and larger terms. If a group holds each of
the pilot's samples many times, it keeps fewer copies, in proportion. The cost of a run depends neither on the number of
clients nor on the samples that they hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from truthfl.contracts.setting import FloatArray, IntArray
from truthfl.learning.data.partition import Federated, Partition, owners_and_positions

GROUPS = 10
SAMPLED_CLIENTS = 20
MOST_GROUPED_SAMPLES = 2000  # that all groups together draw in a round
MOST_ROWS = 2000  # of a group, or the number of all samples if that is larger
COPIES = 8  # average copies of a sample in a group whose weights are not proportional to data size


def reduce_federation(
    federated: Federated, *, sampled: int = SAMPLED_CLIENTS, groups: int = GROUPS
) -> ReducedFederation:
    """`sampled` single clients, evenly spaced in the order of weights; the others in `groups` of equal weight.

    Groups consist of clients with the same main class. This matters with several local steps, when clients with
    different data drift apart.
    """
    main_class = class_counts(federated).argmax(axis=1)  # the most frequent one of each client's samples
    single = _evenly_over_weights(federated.weight, main_class, sampled)
    others = np.setdiff1d(np.arange(len(federated.partition)), single)
    members = [*single[:, None], *_groups(others, federated.weight, main_class, groups)]
    weight = np.array([federated.weight[clients].sum() for clients in members])
    rows = [_rows(federated, clients) for clients in members]
    starts = np.concatenate(([0], np.cumsum([len(group_rows) for group_rows in rows])))
    reduced = replace(
        federated,
        partition=Partition(np.concatenate(rows), starts),
        weight=weight,
        participation=np.array([_participation(federated, clients) for clients in members]),
        merged=np.array([float(len(clients)) for clients in members]),
    )
    return ReducedFederation(reduced, tuple(members), len(single))


def some_clients_of(federated: Federated, most: int, offset: float) -> tuple[Federated, IntArray]:
    """The federation of `most` clients, evenly spaced in the order of weights and main classes, and their positions.

    Their weights are their shares of the weight of all of them.

    offset  between 0 and 1: where in each space the client is
    """
    chosen = _evenly_over_weights(federated.weight, class_counts(federated).argmax(axis=1), most, offset)
    own, within = owners_and_positions(federated.partition.sizes[chosen])
    rows = federated.partition.rows[federated.partition.starts[chosen][own] + within]
    starts = np.concatenate(([0], np.cumsum(federated.partition.sizes[chosen])))
    weight = federated.weight[chosen]
    part = federated.of_others(
        Partition(rows, starts), weight=weight / weight.sum(), participation=federated.participation[chosen]
    )
    return part, chosen


def class_counts(federated: Federated) -> IntArray:
    """How many samples of each class each client holds, (N, classes)."""
    classes, count = len(federated.data.classes), len(federated.partition)
    owner = np.repeat(np.arange(count), federated.partition.sizes)
    times = np.bincount(owner * classes + federated.true_labels(), minlength=count * classes)
    return times.reshape(count, classes)


def _evenly_over_weights(weight: FloatArray, main_class: IntArray, count: int, offset: float = 0.5) -> IntArray:
    """`count` clients, evenly spaced in the order of (weight, main class); all if there are no more."""
    order = np.lexsort((main_class, weight))
    if len(order) <= count:
        return np.sort(order)
    return np.sort(order[((np.arange(count) + offset) * len(order) / count).astype(np.int64)])


def _groups(clients: IntArray, weight: FloatArray, main_class: IntArray, count: int) -> list[IntArray]:
    """The clients in the order of their main class, divided into `count` groups of about equal weight."""
    if not len(clients):
        return []
    ordered = clients[np.argsort(main_class[clients], kind="stable")]
    cumulative = np.cumsum(weight[ordered])
    group = np.minimum((cumulative - weight[ordered] / 2) / cumulative[-1] * count, count - 1).astype(np.int64)
    return [ordered[group == k] for k in np.unique(group)]


def _rows(federated: Federated, clients: IntArray) -> IntArray:
    """The samples of these clients; each client's share of them is their share of the total weight.

    If weights are proportional to data size, every sample occurs as often as it is held; else samples are repeated.
    """
    partition = federated.partition
    share, sizes = federated.weight[clients] / federated.weight[clients].sum(), partition.sizes[clients]
    proportional = np.allclose(share * sizes.sum(), sizes)
    counts = sizes if proportional else np.rint(share * sizes.sum() * COPIES).astype(np.int64).clip(min=1)
    own, within = owners_and_positions(counts)
    rows = partition.rows[partition.starts[clients][own] + within * sizes[own] // counts[own]]
    return _not_more(rows, max(MOST_ROWS, len(federated.data)))


def _not_more(rows: IntArray, most: int) -> IntArray:
    """These rows; if there are more than `most`, this many of them, evenly chosen, each in proportion, rounded."""
    if len(rows) <= most:
        return rows
    return np.sort(rows)[((np.arange(most) + 0.5) * len(rows) / most).astype(np.int64)]


def _participation(federated: Federated, clients: IntArray) -> float:
    """The q of a group at which p²(1−q)/q, the variance added by absence, is the sum over its members."""
    p, q = federated.weight[clients], federated.participation[clients]
    if len(clients) == 1:
        return float(q[0])
    return float(1.0 / (1.0 + (np.square(p) * (1.0 / q - 1.0)).sum() / np.square(p.sum())))


@dataclass(frozen=True, eq=False)
class ReducedFederation:
    """The reduced federation, and the original clients of each of its clients.

    single_clients  the number of clients that are not groups; they come first
    """

    federated: Federated
    members: Sequence[IntArray]
    single_clients: int

    def batches(self, size: float) -> FloatArray:
        """Batches in proportion to weight, in total as many samples as ten clients with this batch size draw."""
        total = size * min(GROUPS, len(self.members))
        return np.maximum(np.rint(total * self.federated.weight), 1.0)

    def assigned(self, batches: FloatArray, most: int = MOST_GROUPED_SAMPLES) -> FloatArray:
        """The batches of single clients unchanged, and of groups in sum, but within what a run can afford.

        batches  one number per original client
        most     samples that all groups together draw in a round
        """
        single = np.concatenate(self.members[: self.single_clients])
        grouped = self.sum_by_group(batches)[self.single_clients :]
        grouped *= min(1.0, most / max(float(grouped.sum()), 1.0))
        return np.concatenate((batches[single], np.maximum(np.rint(grouped), 1.0)))

    def sum_by_group(self, values: FloatArray) -> FloatArray:
        """The sums of `values`, one number per original client, over the members of each client or group."""
        return np.array([values[clients].sum() for clients in self.members])
