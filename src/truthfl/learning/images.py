"""`LabeledImages`: images with their classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from truthfl.errors import InputError
from truthfl.learning.labeled_samples import LabeledSamples, as_array, read_only

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
