"""Reads tables from .csv, .npz and .parquet files, and writes .csv files.

All cells are read as texts; the task decides which columns are numbers.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.learning.data.datasets import names_in_npz, read_npz, short_reason
from truthfl.learning.data.samples import classes_of_rows
from truthfl.learning.tasks.task import ReadSamples

MAX_BYTES = 256_000_000
MAX_COLUMNS = 10_000
NPZ_NAMES = ("rows", "columns")
csv.field_size_limit(MAX_BYTES)

Rows = tuple[tuple[str, ...], NDArray[Any], tuple[str, ...]]
"""Names of columns, cells, and the place of each row."""


def read_table(path: Path, label: str, separator: str | None = None) -> ReadSamples:
    """The rows of a file without the column `label`. Its cells are the labels, unless all of them are empty.

    .csv      with a header, in UTF-8
    .npz      arrays `rows` (n, columns), `columns` (names), and optionally `labels` (names, or positions in `classes`)
    .parquet  if the package pyarrow is installed

    separator  between several classes in a cell; `labels` of an .npz file may then be a matrix of true and false. None
               if a sample has one class
    """
    readers = {".csv": _csv_rows, ".npz": _npz_rows, ".parquet": _parquet_rows}
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise InputError(f"{path} is no table; it must be a {', '.join(readers)} file.")
    if not path.is_file():
        raise InputError(f"{path} does not exist; name a {suffix} file.")
    if path.stat().st_size > MAX_BYTES:
        raise InputError(f"{path} has over {MAX_BYTES / 1e6:.0f} MB; split it into several files.")
    columns, cells, places = readers[suffix](path, label, separator)
    _require_names(columns, path)
    if not len(cells):
        raise InputError(f"{path} has no rows; it must have at least one below the names of its columns.")
    if label not in columns:
        return ReadSamples(cells, None, columns, file=str(path), places=places)
    position = columns.index(label)
    others = [k for k in range(len(columns)) if k != position]
    labels = complete_labels([cell.strip() for cell in cells[:, position]], places, path, label)
    read = ReadSamples(cells[:, others], labels, tuple(columns[k] for k in others), file=str(path), places=places)
    return read if separator is None else read.with_several_labels(separator)


def complete_labels(labels: Sequence[str], places: Sequence[str], path: Path, label: str) -> tuple[str, ...] | None:
    """The labels; None if all are empty, `InputError` if some are."""
    empty = [row for row, name in enumerate(labels) if not name]
    if len(empty) == len(labels):
        return None
    if empty:
        raise InputError(f"{places[empty[0]]} of {path} has no class in {label!r}; all must have one, or none.")
    return tuple(labels)


def write_table(path: Path, samples: ReadSamples, label: str) -> None:
    """Write the rows with their labels as a .csv file."""
    write_csv(path, (*samples.columns, label), samples.raw, samples.labels or ("",) * len(samples))


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Any] | NDArray[Any], labels: Sequence[str]) -> None:
    """Write rows of cells, each with its label in the last column."""
    text = StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([*row, label] for row, label in zip(rows, labels, strict=True))
    write_file(path, text.getvalue())


def csv_rows(path: Path) -> list[tuple[int, list[str]]]:
    """The rows of a .csv file that are not blank, the header first, each with the number of its last line."""
    try:
        text = StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
        reader = csv.reader(text, strict=True)
        return [(reader.line_num, cells) for cells in reader if any(cells)]
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    except (OSError, csv.Error) as error:
        raise InputError(f"{path} cannot be read ({short_reason(error)}); it must be a .csv file in UTF-8.") from None


def not_utf8(path: Path, error: UnicodeDecodeError) -> InputError:
    """The error for a file in another encoding."""
    byte = error.object[error.start]
    return InputError(f"{path} cannot be read as UTF-8 (byte 0x{byte:02x} at {error.start}); save it as UTF-8.")


def _csv_rows(path: Path, _label: str, _separator: str | None) -> Rows:
    rows = csv_rows(path)
    if not rows:
        raise InputError(f"{path} is empty; its first line must be the names of its columns.")
    (_, names), *others = rows
    columns = tuple(name.strip() for name in names)
    if len(columns) == 1 and (";" in columns[0] or "\t" in columns[0]):
        raise InputError(f"line 1 of {path} has one column, {columns[0]!r:.80}; columns must be separated by commas.")
    for line, cells in others:
        if len(cells) != len(columns):
            raise InputError(f"line {line} of {path} has {len(cells)} cells; its header has {len(columns)}.")
    return columns, _cells([cells for _, cells in others], len(columns)), tuple(f"line {line}" for line, _ in others)


def _npz_rows(path: Path, label: str, separator: str | None) -> Rows:
    if not set(NPZ_NAMES) <= names_in_npz(path):
        raise InputError(f"{path} is no table; it must hold the arrays 'rows' and 'columns'.")
    arrays = read_npz(path, NPZ_NAMES, ["labels", "classes"])
    rows, columns = arrays["rows"], tuple(str(name) for name in arrays["columns"].ravel())
    if rows.ndim != 2 or rows.shape[1] != len(columns):
        raise InputError(
            f"{path} has rows of shape {rows.shape}; it must be (rows, {len(columns)}), as 'columns' says."
        )
    values = rows.tolist()
    if "labels" in arrays:
        labels = _npz_labels(path, arrays["labels"], arrays.get("classes"), len(rows), separator)
        columns, values = (*columns, label), [[*row, name] for row, name in zip(values, labels, strict=True)]
    return columns, _cells(values, len(columns)), tuple(f"row {k + 1}" for k in range(len(values)))


def _npz_labels(
    path: Path, labels: NDArray[Any], classes: NDArray[Any] | None, rows: int, separator: str | None
) -> list[str]:
    if separator is not None and labels.ndim != 1:
        if classes is None:
            raise InputError(f"{path} has a matrix of labels; it must have the names of its columns in 'classes'.")
        names = [str(name) for name in classes.ravel()]
        return [separator.join(names[k] for k in own) for own in classes_of_rows(path, labels, rows, len(names))]
    if labels.shape != (rows,):
        raise InputError(f"{path} has labels of shape {labels.shape}; there must be one per row, ({rows},).")
    if classes is None or labels.dtype.kind not in "iu":
        return [_text(label) for label in labels.tolist()]
    names = [str(name) for name in classes.ravel()]
    if labels.size and not 0 <= labels.min() <= labels.max() < len(names):
        raise InputError(f"{path} has labels up to {labels.max()}; they must be positions among {len(names)} classes.")
    return [names[label] for label in labels.tolist()]


def _parquet_rows(path: Path, _label: str, _separator: str | None) -> Rows:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise InputError(f"{path} needs the package pyarrow; install it, or save the table as .csv.") from None
    try:
        table = parquet.read_table(path)
        columns = tuple(str(name) for name in table.column_names)
        values = [table.column(k).to_pylist() for k in range(len(columns))]
    except (OSError, ValueError, NotImplementedError) as error:
        raise InputError(f"{path} cannot be read ({short_reason(error)}); it must be a Parquet file.") from None
    rows = [list(row) for row in zip(*values, strict=True)]
    return columns, _cells(rows, len(columns)), tuple(f"row {k + 1}" for k in range(len(rows)))


def _cells(rows: Sequence[Sequence[Any]], columns: int) -> NDArray[Any]:
    """The cells as texts, (rows, columns); of type object, so that one long cell does not make all of them long."""
    cells = np.empty((len(rows), columns), dtype=object)
    for k, row in enumerate(rows):
        cells[k] = [_text(cell) for cell in row]
    return cells


def _text(cell: object) -> str:
    return (
        cell if isinstance(cell, str) else "" if cell is None else repr(cell) if isinstance(cell, float) else str(cell)
    )


def _require_names(columns: tuple[str, ...], path: Path) -> None:
    if "" in columns:
        raise InputError(f"column {columns.index('') + 1} of {path} has no name; each must have one.")
    if len(set(columns)) != len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise InputError(f"{path} has the column {twice!r} more than once; names must be distinct.")
    if len(columns) > MAX_COLUMNS:
        raise InputError(f"{path} has {len(columns):,} columns; there may be {MAX_COLUMNS:,}.")
