"""Texts to label: a .csv file with a column `text`, or a .jsonl file with a text on each line. Imports `sample`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from truthfl.errors import InputError
from truthfl.samples.sample import (
    Media,
    Pixels,
    Problem,
    Source,
    UnreadableError,
    content_id,
    require_samples,
    samples_with_unique_ids,
)

MAX_BYTES = 256_000_000
MAX_LETTERS = 20_000
csv.field_size_limit(MAX_BYTES)  # a text that is too long is left out; it does not make the whole file unreadable


def open_texts(path: Path) -> Source:
    """Open texts in the order of the file; lines without a text, or with too long a one, are listed as problems."""
    texts, names, problems = [], [], []
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} has over {MAX_BYTES / 1e6:.0f} MB; split it into several files.")
        for line, text in _csv_lines(path) if path.suffix.lower() == ".csv" else _json_lines(path):
            name = f"line {line}"
            fault = _fault(text)
            if fault is None:
                assert isinstance(text, str)
                texts.append(text.strip())
                names.append(name)
            else:
                problems.append(Problem(name, f"{name} {fault}"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read ({error}); it must be text in UTF-8.") from None
    contents = [content_id(b"text ", text.encode("utf-8", "replace")) for text in texts]
    samples = samples_with_unique_ids(contents, names, range(len(texts)))
    return require_samples(Source(str(path), "text", samples, tuple(problems), TextReader(texts)), "at least one text")


class TextReader:
    """Reads samples from a list of texts."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def media(self, row: int) -> Media:
        return Media(self.texts[row].encode("utf-8", "replace"), "text/plain; charset=utf-8")

    def pixels(self, row: int) -> Pixels:
        raise UnreadableError(f"line {row + 1} is a text, not a picture.")


def _csv_lines(path: Path) -> Iterator[tuple[int, object]]:
    """Line number and text of each row."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        if "text" not in (reader.fieldnames or ()):
            raise InputError(f"line 1 of {path} has no column 'text'; it must be a header with that name in it.")
        for fields in reader:
            yield reader.line_num, fields["text"]


def _json_lines(path: Path) -> Iterator[tuple[int, object]]:
    """Line number and text of each line that is not blank."""
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    value = None
                yield number, value.get("text") if isinstance(value, dict) else value


def _fault(text: object) -> str | None:
    if not isinstance(text, str) or not text.strip():
        return "holds no text."
    if len(text) > MAX_LETTERS:
        return f"has {len(text):,} letters; at most {MAX_LETTERS:,} are shown."
    return None
