"""`Split`: one draw of the clients' samples, reduced to the samples that are used, with further samples to label."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from truthfl.adversary.lie_point import MOST_LABELS
from truthfl.learning.federated import Federated
from truthfl.learning.labeled_samples import LabeledSamples
from truthfl.learning.partition import Partition
from truthfl.mechanism.checks import IntArray
from truthfl.mechanism.setting import Training


@dataclass(frozen=True, eq=False)
class Split:
    """The clients' federation and the test set.

    further  for each client rows of `federated.data` that she does not hold and could label as well, of the same
             classes as her own as far as there are any
    """

    federated: Federated
    test: LabeledSamples
    further: tuple[IntArray, ...]

    def with_more_samples(self, client: int, count: int) -> Federated:
        """The federation in which this client holds `count` samples in all; weights remain."""
        own = self.federated.partition.rows_of(client)
        rows = [self.federated.partition.rows_of(other) for other in range(len(self.federated.partition))]
        rows[client] = np.concatenate((own, self.further[client]))[:count]
        return self._with_rows(rows)

    def with_shared_labels(self, labeler: int, partner: int) -> Federated:
        """The federation in which `partner` holds the samples of `labeler` in place of her own; weights remain."""
        rows = [self.federated.partition.rows_of(other) for other in range(len(self.federated.partition))]
        rows[partner] = rows[labeler]
        return self._with_rows(rows)

    def _with_rows(self, rows: list[IntArray]) -> Federated:
        starts = np.concatenate(([0], np.cumsum([len(own) for own in rows])))
        return _same(self.federated, self.federated.data, Partition(np.concatenate(rows), starts))


def make_split(federated: Federated, test: LabeledSamples, training: Training, seed: int) -> Split:
    """The split of this federation, trained with these parameters; `seed` chooses further samples."""
    partition = federated.partition
    further = _further_rows(federated, seed)
    used = np.concatenate((partition.rows, *further))
    position = np.full(len(federated.data), -1, dtype=np.int64)
    position[used] = np.arange(len(used))
    reduced = Partition(position[partition.rows], partition.starts)
    small = _same(federated, federated.data.take(used), reduced, training)
    return Split(small, test, tuple(position[rows] for rows in further))


def most_labels(sizes: ArrayLike, available: int) -> float:
    """The labels that every client can make, as a share of the samples that she holds; at most 1.5.

    sizes      numbers of samples of the clients, all drawn from `available` samples
    """
    return float(np.clip(available / np.max(np.asarray(sizes, dtype=float)), 1.0, MOST_LABELS))


def _further_rows(federated: Federated, seed: int) -> list[IntArray]:
    """For each client rows that she does not hold, half as many as she holds, or all that there are.

    They are in the proportions of her classes, as far as there are enough. Other clients may hold them, as any two
    clients may hold the same sample.
    """
    labels, partition = federated.data.labels, federated.partition
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    of_class = [shuffled[labels[shuffled] == c] for c in range(len(federated.data.classes))]
    further = []
    for client in range(len(partition)):
        own = partition.rows_of(client)
        wanted = np.rint((MOST_LABELS - 1.0) * np.bincount(labels[own], minlength=len(of_class))).astype(int)
        taken = [rows[~np.isin(rows, own)][:count] for rows, count in zip(of_class, wanted, strict=True)]
        held = np.concatenate((own, *taken))
        others = shuffled[~np.isin(shuffled, held)]
        missing = max(math.ceil((MOST_LABELS - 1.0) * len(own)) - sum(map(len, taken)), 0)
        further.append(np.concatenate((*taken, others[:missing])).astype(np.int64))
    return further


def _same(
    federated: Federated, data: LabeledSamples, partition: Partition, training: Training | None = None
) -> Federated:
    return Federated(
        federated.model,
        data,
        partition,
        training or federated.training,
        weight=federated.weight,
        participation=federated.participation,
        merged=federated.merged,
        rule=federated.rule,
    )
