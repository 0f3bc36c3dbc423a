"""Labels of an .npz file whose samples may have several: a matrix (samples, classes) of true and false."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError


def classes_of_rows(path: Path, matrix: NDArray[Any], samples: int, classes: int | None = None) -> list[list[int]]:
    """The positions of each sample's classes; `InputError` unless each has one, and the matrix has this shape.

    classes  their number; None for as many as the matrix has
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
