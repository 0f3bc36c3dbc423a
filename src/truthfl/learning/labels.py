"""The labels that clients train with, simulated from effort and error rate.

Random labels are hashes of (seed, client, position): a client's labels do not depend on other clients, and a change of
effort or error rate changes only the labels concerned.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.learning.draws import Purpose, below, bits_at, key, uniform
from truthfl.learning.labeled_samples import numbers_below
from truthfl.learning.partition import Partition, client_blocks, owners_and_positions
from truthfl.mechanism.checks import FloatArray, IntArray, client_array, whole_number

LABEL_DRAWN, SAMPLES_SKIPPED = 0, 1  # counters of draws for Purpose.LABEL
ERROR_MADE, WRONG_CLASS = 0, 1  # counters of draws for Purpose.LABEL_ERROR


def assigned_labels(
    true_labels: ArrayLike,
    partition: Partition,
    *,
    labeling_effort: ArrayLike,
    error_rate: ArrayLike = 0.0,
    classes: int,
    seed: int,
) -> IntArray:
    """The labels of `partition.rows`, in that order; effort and error rate are one number, or one per client.

    A client labels the share `labeling_effort` of her samples by hand (rounded; the samples are drawn at random) and
    draws the labels of the others uniformly from all classes, the right one included. A label made by hand is replaced
    by one of the wrong classes with probability `error_rate`.
    """
    number_of_classes = whole_number("classes", classes, at_least=1)
    true = numbers_below("true_labels", true_labels, number_of_classes)
    if partition.rows.max() >= len(true):
        raise InputError(f"true_labels has {len(true)} labels; the partition wants {partition.rows.max() + 1} or more.")
    effort = _share_per_client("labeling_effort", labeling_effort, len(partition))
    errors = _share_per_client("error_rate", error_rate, len(partition))
    if number_of_classes == 1 and errors.any():
        raise InputError("error_rate is above 0 with 1 class; there must be 2 classes to take one for the other.")
    labels = np.empty(len(partition.rows), dtype=np.int64)
    for first, last in client_blocks(partition.starts):
        block = slice(partition.starts[first], partition.starts[last])
        clients, sizes = np.arange(first, last), np.diff(partition.starts[first : last + 1])
        handmade = _with_errors(
            true[partition.rows[block]], clients, sizes, errors[first:last], number_of_classes, seed
        )
        by_hand = labeled_by_hand(clients, sizes, effort[first:last], seed)
        labels[block] = np.where(by_hand, handmade, _random_labels(clients, sizes, number_of_classes, seed))
    return labels


def labeled_by_hand(clients: IntArray, sizes: IntArray, effort: FloatArray, seed: int) -> NDArray[np.bool_]:
    """A mask of the samples that these clients label by hand, ordered by client.

    sizes and effort are those of `clients`. A client labels the first round(effort · size) of her samples in a random
    order, so that with more effort she labels the same samples and further ones.
    """
    result = np.repeat(effort == 1.0, sizes)
    partly = (effort > 0.0) & (effort < 1.0)
    owner, position = owners_and_positions(sizes[partly])
    order = bits_at(key(seed, Purpose.LABEL, clients[partly], SAMPLES_SKIPPED)[owner], position)
    by_hand = np.empty(len(owner), dtype=bool)
    by_hand[np.lexsort((order, owner))] = position < np.rint(effort * sizes)[partly][owner]
    result[np.repeat(partly, sizes)] = by_hand
    return result


def _random_labels(clients: IntArray, sizes: IntArray, classes: int, seed: int) -> IntArray:
    owner, position = owners_and_positions(sizes)
    return below(bits_at(key(seed, Purpose.LABEL, clients, LABEL_DRAWN)[owner], position), classes)


def _with_errors(
    true: IntArray, clients: IntArray, sizes: IntArray, error_rate: FloatArray, classes: int, seed: int
) -> IntArray:
    if not error_rate.any():
        return true
    owner, position = owners_and_positions(sizes)
    chance = uniform(bits_at(key(seed, Purpose.LABEL_ERROR, clients, ERROR_MADE)[owner], position))
    step = 1 + below(bits_at(key(seed, Purpose.LABEL_ERROR, clients, WRONG_CLASS)[owner], position), classes - 1)
    return np.where(chance < error_rate[owner], (true + step) % classes, true)


def _share_per_client(field: str, value: ArrayLike, count: int) -> FloatArray:
    return client_array(field, value, count, "client {}".format, at_least=0, at_most=1)
