"""Tables that scikit-learn brings along: breast cancer, wine, iris and digits.

scikit-learn's files are read without importing it. They have no names of columns; those here are what its own
documentation calls them.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from truthfl.errors import InputError
from truthfl.learning.array_files import unpacked_bytes
from truthfl.learning.datasets import DIGITS, package_file
from truthfl.learning.task import ReadSamples

_CELL = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
)
_WINE = (
    "alcohol",
    "malic acid",
    "ash",
    "alkalinity of ash",
    "magnesium",
    "phenols",
    "flavanoids",
    "other phenols",
    "proanthocyanins",
    "colour",
    "hue",
    "OD280/OD315",
    "proline",
)
COLUMNS = {
    "breast_cancer": (
        *(f"mean {name}" for name in _CELL),
        *(f"{name} error" for name in _CELL),
        *(f"worst {name}" for name in _CELL),
    ),
    "wine": _WINE,
    "iris": ("sepal length", "sepal width", "petal length", "petal width"),
    "digits": tuple(f"row {row} column {column}" for row in range(1, 9) for column in range(1, 9)),
}
_FILES = {
    "breast_cancer": "breast_cancer.csv",
    "wine": "wine_data.csv",
    "iris": "iris.csv",
    "digits": "digits.csv.gz",
}
NAMES = tuple(COLUMNS)


def bundled_table(name: str) -> ReadSamples:
    """One of the tables in `NAMES`, with labels."""
    path = package_file("sklearn", f"datasets/data/{_FILES[name]}")
    rows = list(csv.reader(_text(path).splitlines()))
    classes = DIGITS
    if name != "digits":  # the first line is: rows, columns, names of the classes
        classes, rows = tuple(rows[0][2:]), rows[1:]
    columns = COLUMNS[name]
    if any(len(row) != len(columns) + 1 for row in rows):
        raise InputError(f"{path} is not as expected; another version of scikit-learn may have the right file.")
    cells = np.array(rows, dtype=object)
    labels = tuple(classes[int(label)] for label in cells[:, -1])
    return ReadSamples(
        cells[:, :-1], labels, columns, file=name, places=tuple(f"row {k + 1}" for k in range(len(rows)))
    )


def _text(path: Path) -> str:
    return unpacked_bytes(path).tobytes().decode("ascii")
