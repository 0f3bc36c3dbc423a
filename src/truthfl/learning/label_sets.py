"""`LabelSets`: the labels of samples that have one or more each, and the draws of one of them.

A sample takes part in each round with one of its labels, drawn uniformly by a hash of (seed, client, round, sample), so
the expected gradient is that of the uniform distribution over its labels. Training alone takes one, drawn once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.learning.draws import BitArray, Purpose, below, bits_at, key
from truthfl.learning.model import Labels
from truthfl.mechanism.checks import IntArray

IN_ROUND, ALONE, OF_DATA = 0, 1, 2  # counters of draws for Purpose.ONE_OF_SEVERAL


@dataclass(frozen=True, eq=False)
class LabelSets:
    """The labels of n samples, at least one of each.

    classes  positions of classes, sample by sample
    starts   (n + 1,) where each sample's begin; the last number is that of all labels
    """

    classes: IntArray
    starts: IntArray

    @classmethod
    def of(cls, sets: Iterable[Sequence[int]]) -> LabelSets:
        """The labels of samples that have these."""
        listed = list(sets)
        sizes = np.array([len(one) for one in listed], dtype=np.int64)
        if not sizes.all():
            raise InputError(f"sample {int(np.argmin(sizes))} has no label; each must have at least one.")
        flat = np.fromiter(chain.from_iterable(listed), dtype=np.int64, count=int(sizes.sum()))
        return cls(flat, np.concatenate(([0], np.cumsum(sizes))))

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> IntArray:
        """(n,) how many labels each sample has."""
        return np.diff(self.starts)

    def take(self, rows: IntArray) -> LabelSets:
        """The labels of the samples at these positions, in this order."""
        sizes = self.sizes[rows]
        starts = np.concatenate(([0], np.cumsum(sizes)))
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        return LabelSets(self.classes[np.repeat(self.starts[:-1][rows], sizes) + within], starts)

    def with_singles(self, single: NDArray[np.bool_], labels: Labels) -> LabelSets:
        """These labels, but of the samples marked by `single` only the one in `labels`, which has one per sample."""
        sizes = np.where(single, 1, self.sizes)
        starts = np.concatenate(([0], np.cumsum(sizes)))
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        classes = self.classes[np.repeat(self.starts[:-1], sizes) + within]
        classes[starts[:-1][single]] = labels[single]
        return LabelSets(classes, starts)

    def lists(self) -> list[list[int]]:
        """The labels of each sample."""
        return [part.tolist() for part in np.split(self.classes, self.starts[1:-1])]

    def matrix(self, classes: int) -> NDArray[np.bool_]:
        """The labels as true and false, (samples, classes)."""
        made = np.zeros((len(self), classes), dtype=bool)
        made[np.repeat(np.arange(len(self)), self.sizes), self.classes] = True
        return made

    def one_of_each(self, random_bits: BitArray) -> Labels:
        """One label of each sample, chosen by its random bits."""
        chosen: Labels = self.classes[self.starts[:-1] + below(random_bits, self.sizes)]
        return chosen

    def in_round(self, seed: int, client: ArrayLike, round_: int, position: ArrayLike | None = None) -> Labels:
        """The labels with which the samples take part in a round.

        client, position  whose the samples are, and their positions among hers; by default all are hers, in order
        """
        return self.one_of_each(self._bits(seed, (IN_ROUND, client, round_), position))

    def alone(self, seed: int, client: int) -> Labels:
        """The labels with which a client trains alone."""
        return self.one_of_each(self._bits(seed, (ALONE, client)))

    def of_data(self, seed: int) -> Labels:
        """The labels of an operator's samples, drawn once."""
        return self.one_of_each(self._bits(seed, (OF_DATA,)))

    def _bits(self, seed: int, counters: Sequence[ArrayLike], position: ArrayLike | None = None) -> BitArray:
        keys = key(seed, Purpose.ONE_OF_SEVERAL, *counters)
        return bits_at(keys, np.arange(len(self)) if position is None else position)


def labels_in_round(labels: Labels | LabelSets, seed: int, client: int, round_: int) -> Labels:
    """The labels with which a client's samples take part in a round."""
    return labels.in_round(seed, client, round_) if isinstance(labels, LabelSets) else labels


def labels_alone(labels: Labels | LabelSets, seed: int, client: int) -> Labels:
    """The labels with which a client trains alone."""
    return labels.alone(seed, client) if isinstance(labels, LabelSets) else labels
