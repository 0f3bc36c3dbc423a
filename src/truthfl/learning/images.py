"""`LabeledImages`: images with their classes; checks of arrays. Imports `draws` and `mechanism.checks`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.learning.draws import Purpose, generator
from truthfl.mechanism.checks import IntArray, Scalar, whole_number

ByteArray = NDArray[np.uint8]


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


def _pixels(value: ArrayLike) -> ByteArray:
    array = as_array("images", value)
    if array.dtype != np.uint8:
        raise InputError(f"images has type {array.dtype}; it must be uint8, with brightness from 0 to 255.")
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.size == 0:
        raise InputError(
            f"images has shape {array.shape}; it must be (count, height, width) or (count, height, width, channels), "
            "none of them 0."
        )
    return read_only(np.ascontiguousarray(array))


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


@dataclass(frozen=True, init=False, eq=False)
class LabeledImages:
    """n images and their true classes.

    images   (n, height, width, channels), uint8; an array (n, height, width) has one channel
    labels   (n,) positions in `classes`
    classes  the name of each class
    """

    images: ByteArray
    labels: IntArray
    classes: tuple[str, ...]

    def __init__(self, images: ArrayLike, labels: ArrayLike, classes: Sequence[str]) -> None:
        pixels, names = _pixels(images), _class_names(classes)
        numbers = numbers_below("labels", labels, len(names))
        if len(pixels) != len(numbers):
            raise InputError(
                f"there are {len(pixels)} images and {len(numbers)} labels; there must be one label per image."
            )
        object.__setattr__(self, "images", pixels)
        object.__setattr__(self, "labels", numbers)
        object.__setattr__(self, "classes", names)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: ArrayLike) -> LabeledImages:
        """The samples at these positions, in this order."""
        chosen = numbers_below("rows", rows, len(self))
        return LabeledImages(self.images[chosen], self.labels[chosen], self.classes)

    def split_off(self, test_size: int, seed: int) -> tuple[LabeledImages, LabeledImages]:
        """(train, test): `test_size` samples drawn at random are the test set, all others the training set."""
        size = whole_number("test_size", test_size, at_least=1)
        if size >= len(self):
            raise InputError(
                f"test_size is {size} of {len(self)} samples; it must be below {len(self)}, to leave some to train on."
            )
        order = generator(seed, Purpose.SPLIT).permutation(len(self))
        return self.take(order[size:]), self.take(order[:size])
