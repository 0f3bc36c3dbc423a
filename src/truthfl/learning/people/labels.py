"""The labels that clients train with: simulated, read from a file, or derived; the samples they are asked to label.

Random labels are hashes of (seed, client, position). So a client's labels do not depend on other clients, and a change
of effort or error rate changes only the labels concerned.

Samples are requested in a random order, so the labeled ones are like the others. A request for more labels contains
the same samples and further ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.setting import FloatArray, IntArray, client_array, whole_number
from truthfl.errors import InputError
from truthfl.learning.data.partition import Federated, Partition, client_blocks, owners_and_positions
from truthfl.learning.data.samples import LabelSets, numbers_below
from truthfl.learning.models.model import Features, Labels, Model
from truthfl.learning.people.behaviour import Unlabeled
from truthfl.learning.training.compute import one_blas_thread
from truthfl.learning.training.draws import Purpose, below, bits_at, key, uniform

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

    A client labels the share `labeling_effort` of their samples by hand (rounded; the samples are drawn at random).
    They draw the labels of the others uniformly from all classes, the right one included. A label made by hand is
    replaced by one of the wrong classes with probability `error_rate`.
    """
    number_of_classes = whole_number("classes", classes, at_least=1)
    true = numbers_below("true_labels", true_labels, number_of_classes)
    if partition.rows.max() >= len(true):
        raise InputError(f"true_labels has {len(true)} labels; the partition wants {partition.rows.max() + 1} or more.")
    effort = _share_per_client("labeling_effort", labeling_effort, len(partition))
    errors = _share_per_client("error_rate", error_rate, len(partition))
    if number_of_classes == 1 and errors.any():
        raise InputError("error_rate is above 0 with 1 class; an error needs at least 2 classes.")
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

    sizes and effort belong to `clients`. A client labels the first round(effort · size) of their samples in a random
    order. So with more effort they label the same samples and further ones.
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


MOST_DISTANCES = 1 << 22  # computed at a time


def derived_labels(
    unlabeled: Unlabeled,
    model: Model,
    features: Features,
    labels: Labels,
    by_hand: NDArray[np.bool_],
    *,
    rounds: int,
    step_size: float,
    seed: int,
) -> Labels:
    """One client's labels. Those outside the mask `by_hand` are derived from the others, as `unlabeled` says.

    labels             of all the client's samples; only those made by hand are read
    rounds, step_size  of the job: the number of steps of a model that the client trains alone, and their size
    """
    known, own, others = features[by_hand], labels[by_hand], features[~by_hand]
    result = labels.copy()
    if not len(others):
        return result
    if unlabeled is Unlabeled.NEAREST:
        result[~by_hand] = nearest_labels(known, own, others)
    elif unlabeled is Unlabeled.OWN_MODEL:
        result[~by_hand] = own_model_labels(model, known, own, others, steps=rounds, step_size=step_size, seed=seed)
    return result


def nearest_labels(known: Features, labels: Labels, others: Features) -> Labels:
    """For each of `others` the label of the nearest known sample by squared Euclidean distance; in a tie the first.

    For bytes, distances are whole numbers, which float64 represents exactly.
    """
    here = known.reshape(len(known), -1).astype(np.float64)
    there = others.reshape(len(others), here.shape[1])
    norm = np.square(here).sum(axis=1)
    nearest = np.empty(len(there), dtype=np.int64)
    block = max(1, MOST_DISTANCES // len(here))
    for first in range(0, len(there), block):
        part = there[first : first + block].astype(np.float64)
        nearest[first : first + block] = (norm - 2.0 * (part @ here.T)).argmin(axis=1)
    return labels[nearest]


def own_model_labels(
    model: Model, known: Features, labels: Labels, others: Features, *, steps: int, step_size: float, seed: int
) -> Labels:
    """The classes that the model predicts after `steps` steps of full-batch gradient descent on the known samples.

    A model that diverges still predicts something, and this prediction is used.
    """
    params = model.init(seed).copy()
    weight = np.full(len(known), 1.0 / len(known), dtype=np.float32)
    with np.errstate(all="ignore"), one_blas_thread():
        for _ in range(steps):
            params -= np.float32(step_size) * model.weighted_gradient(params, known, labels, weight)
        return model.predict(params, others)


def asked_order(samples: int, client: int, seed: int) -> IntArray:
    """The order in which this client is asked to label this many samples."""
    return np.argsort(bits_at(key(seed, Purpose.ASKED_SAMPLES, client), np.arange(samples)), kind="stable")


def in_asked_order(partition: Partition, seed: int) -> Partition:
    """The partition with each client's samples in the order in which they are asked to label them."""
    return _ordered(partition, np.arange(len(partition)), seed)


def _ordered(partition: Partition, client: IntArray, seed: int) -> Partition:
    """`in_asked_order` of clients with these numbers."""
    owner, position = owners_and_positions(partition.sizes)
    order = bits_at(key(seed, Purpose.ASKED_SAMPLES, client)[owner], position)
    return Partition(partition.rows[np.lexsort((order, owner))], partition.starts)


def ask_for_labels(federated: Federated, labels: ArrayLike, seed: int) -> Federated:
    """The federation of the clients asked for labels, each with the samples that they are asked to label.

    labels  (N,) numbers of samples; clients with 0 do not take part. Weights are shares of all labels
    """
    asked, partition = np.asarray(labels, dtype=np.int64), federated.partition
    if asked.shape != partition.sizes.shape or (asked < 0).any() or (asked > partition.sizes).any() or not asked.any():
        raise InputError("labels are asked for that clients do not have; each number must be from 0 to their samples.")
    present = np.flatnonzero(asked)  # clients who are not asked cost nothing
    sizes, asked = partition.sizes[present], asked[present]
    owner, position = owners_and_positions(sizes)
    held = partition.rows[partition.starts[present][owner] + position]
    ordered = _ordered(Partition(held, np.concatenate(([0], np.cumsum(sizes)))), present, seed)
    kept = position < asked[owner]
    starts = np.concatenate(([0], np.cumsum(asked)))
    return federated.of_others(Partition(ordered.rows[kept], starts), participation=federated.participation[present])


@dataclass(frozen=True, eq=False)
class SeveralLabels:
    """The samples of a run that have several labels; one label is drawn in each round.

    samples           their positions among all of the run's
    client, position  the client of each sample, and its position among that client's samples, including those left out
    sets              their labels
    """

    samples: IntArray
    client: IntArray
    position: IntArray
    sets: LabelSets

    def in_round(self, seed: int, round_: int) -> Labels:
        """The labels with which they take part in a round."""
        return self.sets.in_round(seed, self.client, round_, self.position)

    def without(self, left_out: NDArray[np.bool_]) -> SeveralLabels:
        """Those that stay when the run's samples marked by `left_out` are removed."""
        kept = ~left_out[self.samples]
        moved = np.cumsum(~left_out)[self.samples[kept]] - 1
        return SeveralLabels(moved, self.client[kept], self.position[kept], self.sets.take(np.flatnonzero(kept)))


def sets_given(federated: Federated, labels: Labels, effort: FloatArray, seed: int) -> LabelSets | None:
    """All labels that clients give to their samples; None if the data have one per sample.

    Samples labeled by hand without errors have all their labels; any other sample has one label.

    labels  one of each sample, as made by hand without sets, drawn at random or derived; ordered by client
    effort  (N,) the share of samples that each client labels by hand
    """
    if federated.data.sets is None:
        return None
    partition = federated.partition
    by_hand = labeled_by_hand(np.arange(len(partition)), partition.sizes, effort, seed)
    right = by_hand & (labels == federated.true_labels())
    return federated.data.sets.take(partition.rows).with_singles(~right, labels)


def several_of(federated: Federated, sets: LabelSets | None) -> SeveralLabels | None:
    """Those samples of a federation that have several of these labels; None if there are none."""
    if sets is None:
        return None
    samples = np.flatnonzero(sets.sizes > 1)
    client, position = owners_and_positions(federated.partition.sizes)
    return SeveralLabels(samples, client[samples], position[samples], sets.take(samples)) if len(samples) else None
