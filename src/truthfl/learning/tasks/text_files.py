"""Reads texts from .csv and .jsonl files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from truthfl.errors import InputError
from truthfl.learning.array_files import short_reason
from truthfl.learning.task import ReadSamples
from truthfl.learning.tasks.table_files import MAX_BYTES, complete_labels, csv_rows, not_utf8

MAX_LETTERS = 20_000


def read_texts(path: Path, text: str = "text", label: str = "label", separator: str | None = None) -> ReadSamples:
    """The texts of a file in its order; lines without a text, or with too long a one, are listed as problems.

    .csv    with a header that names the column `text`; the classes are in the column `label`, if there is one
    .jsonl  an object with these fields on each line, or a text alone

    separator  between several classes, which a .jsonl file may have as a list, too; None if a text has one class
    """
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".jsonl"):
        raise InputError(f"{path} holds no texts; it must be a .csv or .jsonl file.")
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} has over {MAX_BYTES / 1e6:.0f} MB; split it into several files.")
        lines = list(_csv_lines(path, text, label) if suffix == ".csv" else _json_lines(path, text, label, separator))
    except UnicodeDecodeError as error:
        raise not_utf8(path, error) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({short_reason(error)}); it must be text in UTF-8.") from None
    kept = [(number, found, name) for number, found, name in lines if _fault(found) is None]
    problems = tuple(f"line {number} {fault}" for number, found, _ in lines if (fault := _fault(found)) is not None)
    texts = np.empty(len(kept), dtype=object)
    texts[:] = [_clean(str(found).strip()) for _, found, _ in kept]
    places = tuple(f"line {number}" for number, _, _ in kept)
    labels = complete_labels([_clean(name) for _, _, name in kept], places, path, label)
    read = ReadSamples(texts, labels, (), problems, str(path), places)
    return read if separator is None else read.with_several_labels(separator)


def _csv_lines(path: Path, text: str, label: str) -> Iterator[tuple[int, object, str]]:
    """Number, text and label of each line."""
    rows = csv_rows(path)
    header = [name.strip() for name in rows[0][1]] if rows else []
    if text not in header:
        raise InputError(f"line 1 of {path} has no column {text!r}; it must be a header with that name in it.")
    at, label_at = header.index(text), header.index(label) if label in header else -1
    for number, cells in rows[1:]:
        name = cells[label_at].strip() if 0 <= label_at < len(cells) else ""
        yield number, cells[at] if at < len(cells) else None, name


def _json_lines(path: Path, text: str, label: str, separator: str | None) -> Iterator[tuple[int, object, str]]:
    """Number, text and label of each line that is not blank."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    value = None
                name = value.get(label) if isinstance(value, dict) else None
                if separator is not None and isinstance(name, list):
                    name = separator.join(str(one).strip() for one in name)
                found = value.get(text) if isinstance(value, dict) else value
                yield number, found, "" if name is None or isinstance(name, dict | list) else str(name).strip()


def _fault(text: object) -> str | None:
    if not isinstance(text, str) or not text.strip():
        return "holds no text."
    if len(text) > MAX_LETTERS:
        return f"has {len(text):,} letters; at most {MAX_LETTERS:,} are shown."
    return None


def _clean(text: str) -> str:
    """The text without halves of surrogate pairs, which no file in UTF-8 can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")
