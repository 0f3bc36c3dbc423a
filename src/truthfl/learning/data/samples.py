"""Samples as numbers with their classes: one class each, or several.

In each round, a sample takes part with one of its labels. The label is drawn uniformly by a hash of (seed, client,
round, sample), so the expected gradient is the mean over the sample's labels. Training alone draws one label once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.contracts.setting import IntArray, Scalar, whole_number
from truthfl.errors import InputError
from truthfl.learning.models.model import Features, Labels
from truthfl.learning.training.draws import BitArray, Purpose, below, bits_at, generator, key


def as_array(field: str, value: ArrayLike) -> NDArray[Any]:
    """The value as an array; `InputError` if its rows have different lengths."""
    try:
        return np.asarray(value)
    except ValueError:
        raise InputError(f"{field} has rows of different lengths; they must all be of one length.") from None


def numbers_below(field: str, value: ArrayLike, limit: int) -> IntArray:
    """A read-only array of integers from 0 to limit − 1; numbers with a fraction are refused, not rounded."""
    array = as_array(field, value)
    if array.ndim != 1 or array.size == 0:
        raise InputError(f"{field} has shape {array.shape}; it must be a list with at least one whole number.")
    if array.dtype.kind not in "iu":
        raise InputError(f"{field} has type {array.dtype}; it must hold whole numbers.")
    outside = np.flatnonzero((array < 0) | (array >= limit))
    if outside.size:
        first = int(outside[0])
        raise InputError(f"{field} at position {first} is {array[first]}; it must be from 0 to {limit - 1}.")
    return read_only(array.astype(np.int64, copy=False))


def read_only(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """A read-only view of the array."""
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, init=False, eq=False)
class LabeledSamples:
    """n samples as numbers, and their true classes.

    features  (n, …), uint8 or float32, finite; of bytes, 255 stands for 1
    labels    (n,) positions in `classes`
    classes   the name of each class
    sets      all labels of each sample, if it may have several, and `labels` is one of them; None otherwise
    """

    features: Features
    labels: IntArray
    classes: tuple[str, ...]
    sets: LabelSets | None

    def __init__(
        self, features: ArrayLike, labels: ArrayLike, classes: Sequence[str], sets: LabelSets | None = None
    ) -> None:
        checked, names = self._checked(features), _class_names(classes)
        numbers = numbers_below("labels", labels, len(names))
        if len(checked) != len(numbers):
            raise InputError(
                f"there are {len(checked)} {self._noun}s and {len(numbers)} labels; there must be one label per "
                f"{self._noun}."
            )
        object.__setattr__(self, "features", checked)
        object.__setattr__(self, "labels", numbers)
        object.__setattr__(self, "classes", names)
        object.__setattr__(self, "sets", sets)

    _noun = "sample"

    @classmethod
    def _checked(cls, features: ArrayLike) -> Features:
        array = as_array("features", features)
        if array.dtype not in (np.dtype(np.uint8), np.dtype(np.float32)):
            raise InputError(f"features has type {array.dtype}; it must be uint8 (0 to 255) or float32.")
        if array.ndim < 2 or array.size == 0:
            raise InputError(f"features has shape {array.shape}; it must be (samples, numbers), none of them 0.")
        finite = np.isfinite(array.reshape(len(array), -1)).all(axis=1)
        if not finite.all():
            first = int(np.flatnonzero(~finite)[0])
            raise InputError(f"features holds NaN or infinity at sample {first}; it must be finite numbers.")
        return read_only(np.ascontiguousarray(array))

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: ArrayLike) -> Self:
        """The samples at these positions, in this order."""
        chosen = numbers_below("rows", rows, len(self))
        sets = None if self.sets is None else self.sets.take(chosen)
        return type(self)(self.features[chosen], self.labels[chosen], self.classes, sets)

    def given(self, rows: IntArray) -> IntArray | LabelSets:
        """The labels that an honest client gives to these samples: all labels of each, if it may have several."""
        return self.labels[rows] if self.sets is None else self.sets.take(rows)

    def split_off(self, test_size: int, seed: int) -> tuple[Self, Self]:
        """(train, test): `test_size` samples drawn at random are the test set, all others the training set."""
        train, test = split_positions(len(self), test_size, seed)
        return self.take(train), self.take(test)


def split_positions(count: int, test_size: int, seed: int) -> tuple[IntArray, IntArray]:
    """Positions of the training set and of a test set of `test_size` samples, drawn at random from this many."""
    size = whole_number("test_size", test_size, at_least=1)
    if size >= count:
        raise InputError(
            f"test_size is {size} of {count} samples; it must be below {count}, to leave some to train on."
        )
    order = generator(seed, Purpose.SPLIT).permutation(count)
    return order[size:], order[:size]


def _class_names(value: Sequence[str]) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(name, str) and name for name in value):
        raise InputError(f"classes is {value!r}; it must be a list of names, one per class.")
    names = tuple(str(name) for name in value)
    if not names:
        raise InputError("classes is empty; there must be at least one class.")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"classes has the name {twice!r} more than once; names must be distinct.")
    return names


ByteArray = NDArray[np.uint8]


@dataclass(frozen=True, init=False, eq=False)
class LabeledImages(LabeledSamples):
    """n images and their true classes.

    features  (n, height, width, channels), uint8; an array (n, height, width) has one channel
    """

    features: ByteArray

    _noun = "image"

    @property
    def images(self) -> ByteArray:
        """The features."""
        return self.features

    @classmethod
    def _checked(cls, features: ArrayLike) -> ByteArray:
        array = as_array("images", features)
        if array.dtype != np.uint8:
            raise InputError(f"images has type {array.dtype}; it must be uint8, with brightness from 0 to 255.")
        if array.ndim == 3:
            array = array[..., None]
        if array.ndim != 4 or array.size == 0:
            raise InputError(
                f"images has shape {array.shape}; it must be (count, height, width) or (count, height, width, "
                "channels), none of them 0."
            )
        return read_only(np.ascontiguousarray(array))


def classes_of_rows(path: Path, matrix: NDArray[Any], samples: int, classes: int | None = None) -> list[list[int]]:
    """The positions of each sample's classes; `InputError` unless each has one, and the matrix has this shape.

    classes  their number; None: as many as the matrix has
    """
    columns = matrix.shape[1] if classes is None and matrix.ndim == 2 else classes
    if matrix.dtype != np.bool_ or matrix.ndim != 2 or matrix.shape != (samples, columns):
        raise InputError(
            f"{path} has labels of type {matrix.dtype} and shape {matrix.shape}; with several labels per sample they "
            f"must be true or false, ({samples}, {'classes' if columns is None else columns}): one row per sample, one "
            "column per class."
        )
    empty = np.flatnonzero(~matrix.any(axis=1))
    if empty.size:
        raise InputError(f"sample {int(empty[0])} in {path} has no label; each must have at least one.")
    return [np.flatnonzero(row).tolist() for row in matrix]


IN_ROUND, ALONE, OF_DATA = 0, 1, 2  # counters of draws for Purpose.ONE_OF_SEVERAL


@dataclass(frozen=True, eq=False)
class LabelSets:
    """The labels of n samples, at least one of each.

    classes  positions of classes, sample by sample
    starts   (n + 1,) where each sample's labels begin; the last number is the number of all labels
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
        """These labels, except that samples marked by `single` have only their label in `labels` (one per sample)."""
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

        client, position  each sample's client, and its position among theirs; by default all are one client's, in order
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
