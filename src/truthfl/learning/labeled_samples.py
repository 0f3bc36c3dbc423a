"""`LabeledSamples`: samples as numbers, with their classes; checks of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.learning.draws import Purpose, generator
from truthfl.learning.label_sets import LabelSets
from truthfl.learning.model import Features
from truthfl.mechanism.checks import IntArray, Scalar, whole_number


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
    sets      all labels of each, if samples may have several: `labels` is then one of them; None otherwise
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
        """The labels that an honest client gives to these samples: all of each, if there may be several."""
        return self.labels[rows] if self.sets is None else self.sets.take(rows)

    def split_off(self, test_size: int, seed: int) -> tuple[Self, Self]:
        """(train, test): `test_size` samples drawn at random are the test set, all others the training set."""
        train, test = split_positions(len(self), test_size, seed)
        return self.take(train), self.take(test)


def split_positions(count: int, test_size: int, seed: int) -> tuple[IntArray, IntArray]:
    """Positions of the training set and of a test set of `test_size` samples, drawn at random of so many."""
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
