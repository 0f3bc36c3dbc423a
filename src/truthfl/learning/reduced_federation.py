"""Reduces a federation of many clients to a few dozen: some single clients, the others merged into groups.

All samples and the objective Σ p_i F_i stay the same. A group has the total weight of its members and draws its batches
from all their samples, so that the noise of the common gradient is still Σ p²σ²/D, over fewer and larger terms. The
cost of a run then depends on the batches, not on the number of clients. Imports `federated`, `partition` and
`mechanism.checks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truthfl.learning.federated import Federated
from truthfl.learning.partition import Partition
from truthfl.mechanism.checks import FloatArray, IntArray

GROUPS = 10
SAMPLED_CLIENTS = 20
MOST_GROUPED_SAMPLES = 2000  # that all groups together draw in a round
COPIES = 8  # average copies of a sample in a group whose weights are not proportional to data size


def reduce_federation(
    federated: Federated, *, sampled: int = SAMPLED_CLIENTS, groups: int = GROUPS
) -> ReducedFederation:
    """`sampled` single clients, evenly spaced in the order of weights; the others in `groups` of equal weight.

    Groups consist of clients with the same main class. This matters with several local steps, when clients with
    different data drift apart.
    """
    main_class = main_classes(federated)
    single = _evenly_over_weights(federated.weight, main_class, sampled)
    others = np.setdiff1d(np.arange(len(federated.partition)), single)
    members = [*single[:, None], *_groups(others, federated.weight, main_class, groups)]
    weight = np.array([federated.weight[clients].sum() for clients in members])
    rows = [_rows(federated, clients) for clients in members]
    starts = np.concatenate(([0], np.cumsum([len(group_rows) for group_rows in rows])))
    reduced = Federated(
        federated.model,
        federated.data,
        Partition(np.concatenate(rows), starts),
        federated.training,
        weight=weight,
        participation=[_participation(federated, clients) for clients in members],
        merged=[float(len(clients)) for clients in members],
        rule=federated.rule,
    )
    return ReducedFederation(reduced, tuple(members), len(single))


def main_classes(federated: Federated) -> IntArray:
    """The most frequent class of each client's samples."""
    classes, count = len(federated.data.classes), len(federated.partition)
    owner = np.repeat(np.arange(count), federated.partition.sizes)
    times = np.bincount(owner * classes + federated.true_labels(), minlength=count * classes)
    return np.asarray(times.reshape(count, classes).argmax(axis=1))


def _evenly_over_weights(weight: FloatArray, main_class: IntArray, count: int) -> IntArray:
    """`count` clients, evenly spaced in the order of (weight, main class); all if there are no more."""
    order = np.lexsort((main_class, weight))
    if len(order) <= count:
        return np.sort(order)
    return np.sort(order[((np.arange(count) + 0.5) * len(order) / count).astype(np.int64)])


def _groups(clients: IntArray, weight: FloatArray, main_class: IntArray, count: int) -> list[IntArray]:
    """The clients in the order of their main class, divided into `count` groups of about equal weight."""
    if not len(clients):
        return []
    ordered = clients[np.argsort(main_class[clients], kind="stable")]
    cumulative = np.cumsum(weight[ordered])
    group = np.minimum((cumulative - weight[ordered] / 2) / cumulative[-1] * count, count - 1).astype(np.int64)
    return [ordered[group == k] for k in np.unique(group)]


def _rows(federated: Federated, clients: IntArray) -> IntArray:
    """The samples of these clients, each client's share of them being her share of their total weight.

    If weights are proportional to data size, every sample occurs once; else samples are repeated.
    """
    held = [federated.partition.rows_of(int(client)) for client in clients]
    share, sizes = federated.weight[clients] / federated.weight[clients].sum(), federated.partition.sizes[clients]
    proportional = np.allclose(share * sizes.sum(), sizes)
    counts = sizes if proportional else np.rint(share * sizes.sum() * COPIES).astype(np.int64).clip(min=1)
    return np.concatenate([rows[np.arange(n) * len(rows) // n] for rows, n in zip(held, counts, strict=True)])


def _participation(federated: Federated, clients: IntArray) -> float:
    """The q of a group at which p²(1−q)/q, the variance added by absence, is the sum of that of its members."""
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
        """Batches in proportion to weight, in all as many samples as ten clients with this batch size draw."""
        total = size * min(GROUPS, len(self.members))
        return np.maximum(np.rint(total * self.federated.weight), 1.0)

    def assigned(self, batches: FloatArray) -> FloatArray:
        """The batches of single clients as they are, and of groups in sum, but not more than a run can afford.

        batches  one number per original client
        """
        single = np.concatenate(self.members[: self.single_clients])
        grouped = self.sum_by_group(batches)[self.single_clients :]
        grouped *= min(1.0, MOST_GROUPED_SAMPLES / max(float(grouped.sum()), 1.0))
        return np.concatenate((batches[single], np.maximum(np.rint(grouped), 1.0)))

    def sum_by_group(self, values: FloatArray) -> FloatArray:
        """The sums of `values`, one number per original client, over the members of each client or group."""
        return np.array([values[clients].sum() for clients in self.members])
