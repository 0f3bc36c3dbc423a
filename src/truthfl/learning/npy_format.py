"""Arrays as .npy bytes and back, without parsing headers that are exactly those which NumPy writes.

NumPy reads a header as a Python expression, which takes longer than a small model's round of checks. Here the header
that a known shape and type must have is compared byte by byte; whatever differs is left to NumPy.
"""

from __future__ import annotations

import math
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

PLAIN_KINDS = "fiu"  # numbers, whose dtype is all that has to be known


def npy_bytes(array: NDArray[Any]) -> bytes:
    """The content of an .npy file with this array."""
    if array.flags.c_contiguous and array.dtype.kind in PLAIN_KINDS:
        return b"".join((_header(array.dtype, array.shape), array.data))
    packed = BytesIO()
    np.save(packed, array, allow_pickle=False)
    return packed.getvalue()


def array_of_npy(content: bytes, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The array in these bytes, perhaps read-only; of this type and shape if they begin with the header of these.

    The bytes may be anyone's: NumPy raises any error if they are no array. The type and shape must be trusted.
    """
    if dtype.kind in PLAIN_KINDS:
        header = _header(dtype, shape)
        if content.startswith(header) and len(content) == len(header) + math.prod(shape) * dtype.itemsize:
            return np.frombuffer(content, dtype, offset=len(header)).reshape(shape)
    array = np.load(BytesIO(content), allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("this is an archive, no array")
    return array


@lru_cache(maxsize=64)
def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What NumPy writes before an array of this type and shape in C's order."""
    packed = BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(packed, fields)
    return packed.getvalue()
