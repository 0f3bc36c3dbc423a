"""A federation of many clients as one of a few dozen: some clients by themselves, the others merged into groups.

All clients' samples stay, and so does the objective Σ p_i F_i. A group draws its batch from all its members' samples
and has the weight of all of them, so the noise of the common gradient is Σ p²σ²/D as before, over fewer and larger
terms. What a run costs then depends on the batches, not on the number of clients. Looks at `federated`, `partition`.
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
UNEVEN_TIMES = 8  # how often a group has a sample where weights are not by data size


def reduced(federated: Federated, *, sampled: int = SAMPLED_CLIENTS, groups: int = GROUPS) -> ReducedFederation:
    """So many clients by themselves, evenly over all weights; the others in groups of alike clients, of like weight.

    Clients are alike when most of their samples are of the same class. With several local steps that keeps what pulls
    them apart; with one it does not matter who is in which group.
    """
    main_class = _main_classes(federated)
    alone = _evenly_over_weights(federated.weight, main_class, sampled)
    others = np.setdiff1d(np.arange(len(federated.partition)), alone)
    members = [*alone[:, None], *_groups(others, federated.weight, main_class, groups)]
    weight = np.array([federated.weight[some].sum() for some in members])
    rows = [_rows(federated, some) for some in members]
    starts = np.concatenate(([0], np.cumsum([len(some) for some in rows])))
    few = Federated(
        federated.model,
        federated.data,
        Partition(np.concatenate(rows), starts),
        federated.training,
        weight=weight,
        participation=[_participation(federated, some) for some in members],
    )
    return ReducedFederation(few, tuple(members), len(alone))


def _main_classes(federated: Federated) -> IntArray:
    """The class that most of a client's samples belong to."""
    classes, count = len(federated.data.classes), len(federated.partition)
    owner = np.repeat(np.arange(count), federated.partition.sizes)
    times = np.bincount(owner * classes + federated.true_labels(), minlength=count * classes)
    return np.asarray(times.reshape(count, classes).argmax(axis=1))


def _evenly_over_weights(weight: FloatArray, main_class: IntArray, count: int) -> IntArray:
    """In order of weight, and of main class where weights are equal, every so-manyth client; all where they are few."""
    order = np.lexsort((main_class, weight))
    if len(order) <= count:
        return np.sort(order)
    return np.sort(order[((np.arange(count) + 0.5) * len(order) / count).astype(np.int64)])


def _groups(clients: IntArray, weight: FloatArray, main_class: IntArray, count: int) -> list[IntArray]:
    """These clients in order of main class, cut where the weight so far passes the next of `count` equal shares."""
    if not len(clients):
        return []
    ordered = clients[np.argsort(main_class[clients], kind="stable")]
    so_far = np.cumsum(weight[ordered])
    share = np.minimum((so_far - weight[ordered] / 2) / so_far[-1] * count, count - 1).astype(np.int64)
    return [ordered[share == k] for k in np.unique(share)]


def _rows(federated: Federated, clients: IntArray) -> IntArray:
    """The samples of these clients together, each client's share of them being her share of their weight.

    Where weights are by data size, these are all samples of all of them, once; else several times, some more often.
    """
    held = [federated.partition.rows_of(int(client)) for client in clients]
    share, sizes = federated.weight[clients] / federated.weight[clients].sum(), federated.partition.sizes[clients]
    exact = np.allclose(share * sizes.sum(), sizes)
    times = sizes if exact else np.rint(share * sizes.sum() * UNEVEN_TIMES).astype(np.int64).clip(min=1)
    return np.concatenate([rows[np.arange(n) * len(rows) // n] for rows, n in zip(held, times, strict=True)])


def _participation(federated: Federated, clients: IntArray) -> float:
    """The q with which p²(1−q)/q, the variance that absence adds, is what it is for these clients in sum."""
    p, q = federated.weight[clients], federated.participation[clients]
    if len(clients) == 1:
        return float(q[0])
    return float(1.0 / (1.0 + (np.square(p) * (1.0 / q - 1.0)).sum() / np.square(p.sum())))


@dataclass(frozen=True, eq=False)
class ReducedFederation:
    """The federation of the few, and which clients each of them stands for; the first `alone` are single clients."""

    federated: Federated
    members: Sequence[IntArray]
    alone: int

    def batches(self, size: float) -> FloatArray:
        """Batches in proportion to weight: in all as many samples as ten clients with this batch size draw."""
        in_all = size * min(GROUPS, len(self.members))
        return np.maximum(np.rint(in_all * self.federated.weight), 1.0)

    def in_sum(self, values: FloatArray) -> FloatArray:
        """A sum over the members of each, of one number per client of the whole federation."""
        return np.array([values[some].sum() for some in self.members])
