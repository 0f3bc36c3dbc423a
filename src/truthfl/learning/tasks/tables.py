"""`Tables`: rows with numbers and categories, and the classes in one column; the built-in tables.

scikit-learn's files are read without importing it. They have no column names; the names here come from its
documentation.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.data.datasets import DIGITS, package_file, unpacked_bytes
from truthfl.learning.models.model import Features
from truthfl.learning.tasks.table_files import MAX_COLUMNS, read_table, write_table
from truthfl.learning.tasks.task import ReadSamples, TaskOfFiles
from truthfl.texts import LONGEST_NAME, plain

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


MOST_CATEGORIES = 50  # of a column that is not named in `categories`
MAX_VALUES = 10_000  # of all categories together
SHOWN = 5  # names in a sentence


@dataclass(frozen=True)
class Tables(TaskOfFiles):
    """Rows of a table: numbers, standardised by the operator's pilot data, and categories, a 0 or 1 for each value.

    label       name of the column with the class
    numbers     columns with numbers
    categories  columns with categories. A column in neither list has numbers if every cell is a number. Otherwise it
                has categories if it has at most 50 values
    ignore      columns that are left out

    Fitted: means, scales of the numbers; values of each category.
    """

    label: str = "label"
    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    fitted: ClassVar[tuple[str, ...]] = ("means", "scales", "values")
    sources: ClassVar[tuple[str, ...]] = NAMES

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.label, str) or not 0 < len(self.label) <= LONGEST_NAME:
            raise InputError(f"label is {plain(repr(self.label), 60)}; it must be the name of a column.")
        for field in ("numbers", "categories", "ignore"):
            _require_names(field, getattr(self, field))
        named = (self.label, *self.numbers, *self.categories, *self.ignore)
        if len(set(named)) != len(named):
            twice = next(name for name in named if named.count(name) > 1)
            raise InputError(f"the column {twice!r} is named twice among label, numbers, categories and ignore.")
        if len(named) > MAX_COLUMNS:
            raise InputError(f"{len(named):,} columns are named; there may be {MAX_COLUMNS:,}.")
        _require_fitted(self)

    def read(self, path: Path) -> ReadSamples:
        return read_table(path, self.label, self.separator)

    def operator_samples(self, source: str) -> ReadSamples:
        if source in self.sources:
            return bundled_table(source)
        if not Path(source).exists():
            known = ", ".join(f'"{name}"' for name in self.sources)
            raise InputError(
                f"there is no file {source!r}; source must be a .csv, .npz or .parquet file, or one of {known}."
            )
        read = self.read(Path(source))
        if read.labels is None:
            raise InputError(f"{source} has no column {self.label!r}; the operator's data must have the true classes.")
        return read

    def fit(self, pilot: ReadSamples, known: ReadSamples) -> Self:
        numbers, categories = self._divided(known)
        columns = [_numbers(pilot, name, self._columns(numbers, categories)) for name in numbers]
        found = super().fit(pilot, known)
        values = tuple(tuple(sorted(set(_cells(known, name).tolist()))) for name in categories)
        if sum(map(len, values)) > MAX_VALUES:
            raise InputError(f"the categories of {known.file} have over {MAX_VALUES:,} values; name columns in ignore.")
        return replace(
            found,
            numbers=numbers,
            categories=categories,
            means=tuple(float(column.mean()) for column in columns),
            scales=tuple(_scale(column) for column in columns),
            values=values,
        )

    def features(self, samples: ReadSamples) -> Features:
        if len(self.means) != len(self.numbers) or len(self.values) != len(self.categories) or not self._width:
            raise InputError("the table's columns are not known yet; `fit` finds them in the operator's data.")
        made = np.zeros((len(samples), self._width), dtype=np.float32)
        known = self._columns(self.numbers, self.categories)
        for k, (name, mean, scale) in enumerate(zip(self.numbers, self.means, self.scales, strict=True)):
            with np.errstate(over="ignore"):
                made[:, k] = (_numbers(samples, name, known) - mean) / scale
            _require_finite(samples, name, made[:, k])
        position = len(self.numbers)
        for name, values in zip(self.categories, self.values, strict=True):
            places = _category_positions(samples, name, values, known)
            made[np.arange(len(samples)), position + places] = 1.0
            position += len(values)
        return made

    def write(self, path: Path, samples: ReadSamples) -> None:
        write_table(path, self.for_file(samples), self.label)

    @property
    def _width(self) -> int:
        return len(self.numbers) + sum(map(len, self.values))

    def _columns(self, numbers: Sequence[str], categories: Sequence[str]) -> str:
        return _some((*numbers, *categories))

    def _divided(self, known: ReadSamples) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns with numbers and those with categories."""
        for name in (*self.numbers, *self.categories, *self.ignore):
            if name not in known.columns:
                raise InputError(f"{known.file} has no column {name!r}; it has {_some(known.columns)}.")
        named = {*self.numbers, *self.categories, *self.ignore}
        numbers, categories = list(self.numbers), list(self.categories)
        for name in (name for name in known.columns if name not in named):
            cells = _cells(known, name)
            wrong = _no_number(cells)
            if wrong is None:
                numbers.append(name)
            elif len(different := set(cells.tolist())) <= MOST_CATEGORIES:
                categories.append(name)
            else:
                raise InputError(
                    f"column {plain(name, 60)} has {len(different)} different values, and {known.place(wrong)} has "
                    f"{plain(repr(cells[wrong]), 60)}, which is no number; name it in ignore, or in categories."
                )
        if not numbers and not categories:
            raise InputError(f"{known.file} has no columns to learn from beside {self.label!r}.")
        return tuple(numbers), tuple(categories)


def _cells(samples: ReadSamples, name: str, known: str = "") -> NDArray[Any]:
    """The cells of a column, without spaces around them."""
    if name not in samples.columns:
        raise InputError(
            f"{samples.file or 'the table'} has no column {plain(repr(name), 60)}; the job's columns are {known}."
        )
    column = samples.raw[:, samples.columns.index(name)]
    return np.array([str(cell).strip() for cell in column], dtype=object)


def _as_number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if isfinite(value) and "_" not in cell else None


def _no_number(cells: NDArray[Any]) -> int | None:
    """The position of the first cell that is no finite number."""
    return next((row for row, cell in enumerate(cells) if _as_number(cell) is None), None)


def _numbers(samples: ReadSamples, name: str, known: str) -> NDArray[np.float64]:
    cells = _cells(samples, name, known)
    found = [_as_number(cell) for cell in cells]
    if None in found:
        row = found.index(None)
        raise InputError(
            f"{samples.place(row)} has {plain(repr(cells[row]), 60)} in column {plain(name, 60)}; it must be a number."
        )
    return np.array(found, dtype=np.float64)


def _category_positions(samples: ReadSamples, name: str, values: tuple[str, ...], known: str) -> NDArray[np.int64]:
    position = {value: k for k, value in enumerate(values)}
    cells = _cells(samples, name, known)
    unknown = next((row for row, cell in enumerate(cells) if cell not in position), None)
    if unknown is not None:
        raise InputError(
            f"{samples.place(unknown)} has {plain(repr(cells[unknown]), 60)} in column {plain(name, 60)}; the "
            f"job knows {_some(values)}."
        )
    return np.array([position[cell] for cell in cells], dtype=np.int64)


def _require_finite(samples: ReadSamples, name: str, column: NDArray[np.float32]) -> None:
    wrong = np.flatnonzero(~np.isfinite(column))
    if wrong.size:
        raise InputError(
            f"{samples.place(int(wrong[0]))} has a number in column {plain(name, 60)} that is too large to use."
        )


def _scale(column: NDArray[np.float64]) -> float:
    """The standard deviation; 1 of a column that is constant but for rounding."""
    deviation = float(column.std())
    return deviation if deviation > 10 * np.finfo(np.float64).eps * float(abs(column).max()) else 1.0


def _some(names: Sequence[str]) -> str:
    return ", ".join(plain(name, 60) for name in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


def _require_names(field: str, names: object) -> None:
    if not isinstance(names, tuple) or not all(
        isinstance(name, str) and 0 < len(name) <= LONGEST_NAME for name in names
    ):
        raise InputError(f"{field} is {plain(repr(names), 60)}; it must be a list of names of columns.")


def _require_fitted(task: Tables) -> None:
    """Raise `InputError` unless these measured values are possible; they may come from somebody else."""
    numbers, scales, values = task.means, task.scales, task.values
    for field, found in (("means", numbers), ("scales", scales)):
        if not isinstance(found, tuple) or not all(_is_number(one) for one in found):
            raise InputError(f"{field} is {plain(repr(found), 60)}; it must be a list of numbers.")
    if any(scale <= 0 for scale in scales) or len(scales) != len(numbers) or len(numbers) not in (0, len(task.numbers)):
        raise InputError("means and scales must be one of each for every column of numbers, and scales above 0.")
    if not isinstance(values, tuple) or len(values) not in (0, len(task.categories)):
        raise InputError("values must be a list for each column of categories.")
    for known in values:
        if not isinstance(known, tuple) or not known or len(set(known)) != len(known):
            raise InputError("values must be lists of distinct texts.")
        if not all(isinstance(value, str) and len(value) <= LONGEST_NAME for value in known):
            raise InputError(f"a category has a value that is no text of at most {LONGEST_NAME} letters.")
    if sum(map(len, values)) > MAX_VALUES:
        raise InputError(f"the categories have over {MAX_VALUES:,} values.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
