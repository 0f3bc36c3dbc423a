"""Which of her samples a client is asked to label, when she is not asked to label all of them.

Samples are asked for in a random order, so that those labeled are like those not labeled, and more labels are the same
samples and further ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from truthfl.errors import InputError
from truthfl.learning.draws import Purpose, bits_at, key
from truthfl.learning.federated import Federated
from truthfl.learning.partition import Partition, owners_and_positions
from truthfl.mechanism.checks import IntArray


def asked_order(samples: int, client: int, seed: int) -> IntArray:
    """The order in which this client is asked to label so many samples."""
    return np.argsort(bits_at(key(seed, Purpose.ASKED_SAMPLES, client), np.arange(samples)), kind="stable")


def in_asked_order(partition: Partition, seed: int) -> Partition:
    """The partition with each client's samples in the order in which she is asked to label them."""
    return _ordered(partition, np.arange(len(partition)), seed)


def _ordered(partition: Partition, client: IntArray, seed: int) -> Partition:
    """`in_asked_order` of clients with these numbers."""
    owner, position = owners_and_positions(partition.sizes)
    order = bits_at(key(seed, Purpose.ASKED_SAMPLES, client)[owner], position)
    return Partition(partition.rows[np.lexsort((order, owner))], partition.starts)


def ask_for_labels(federated: Federated, labels: ArrayLike, seed: int) -> Federated:
    """The federation of the clients who are asked for labels, each with the samples that she is asked to label.

    labels  (N,) numbers of samples; clients with 0 do not take part. Weights are shares of all labels
    """
    asked, partition = np.asarray(labels, dtype=np.int64), federated.partition
    if asked.shape != partition.sizes.shape or (asked < 0).any() or (asked > partition.sizes).any() or not asked.any():
        raise InputError("labels are asked for that clients do not have; each number must be from 0 to her samples.")
    present = np.flatnonzero(asked)  # those who are not asked cost nothing
    sizes, asked = partition.sizes[present], asked[present]
    owner, position = owners_and_positions(sizes)
    held = partition.rows[partition.starts[present][owner] + position]
    ordered = _ordered(Partition(held, np.concatenate(([0], np.cumsum(sizes)))), present, seed)
    kept = position < asked[owner]
    starts = np.concatenate(([0], np.cumsum(asked)))
    return Federated(
        federated.model,
        federated.data,
        Partition(ordered.rows[kept], starts),
        federated.training,
        participation=federated.participation[present],
        rule=federated.rule,
    )
