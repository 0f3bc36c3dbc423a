"""Samples of a federation that have several labels: what clients give of them, and which one takes part in a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truthfl.learning.federated import Federated
from truthfl.learning.label_sets import LabelSets
from truthfl.learning.labels import labeled_by_hand
from truthfl.learning.model import Labels
from truthfl.learning.partition import owners_and_positions
from truthfl.mechanism.checks import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class SeveralLabels:
    """Those samples of a run that have several labels, of which one is drawn in each round.

    samples           their positions among all of the run's
    client, position  whose each is, and its position among hers, with those that she leaves out
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

    Who labels a sample by hand, and makes no error, gives all that it has; any other sample has one label.

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
