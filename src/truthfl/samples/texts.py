"""Texts to label: a .csv file with a column `text`, or a .jsonl file with a text on each line. Looks at `sample`."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from truthfl.errors import InputError
from truthfl.samples.sample import (
    Pixels,
    Problem,
    Shown,
    Source,
    UnreadableError,
    content_id,
    numbered,
    require_some,
)

MOST_BYTES = 256_000_000
LONGEST_TEXT = 20_000
csv.field_size_limit(MOST_BYTES)  # what is too long is passed over by itself, not with the whole file


def open_texts(path: Path) -> Source:
    """In the order of the file; lines that hold no text, or too long a one, are reported and passed over."""
    texts, names, problems = [], [], []
    try:
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"{path} has over {MOST_BYTES / 1e6:.0f} MB; split it into several files.")
        for line, text in _csv_lines(path) if path.suffix.lower() == ".csv" else _json_lines(path):
            name = f"line {line}"
            why = _fault(text)
            if why is None:
                assert isinstance(text, str)
                texts.append(text.strip())
                names.append(name)
            else:
                problems.append(Problem(name, f"{name} {why}"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read ({error}); it must be text in UTF-8.") from None
    contents = [content_id(b"text ", text.encode("utf-8", "replace")) for text in texts]
    samples = numbered(contents, names, range(len(texts)))
    return require_some(Source(str(path), "text", samples, tuple(problems), TextReader(texts)), "at least one text")


class TextReader:
    """Gives texts."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def shown(self, row: int) -> Shown:
        return Shown(self.texts[row].encode("utf-8", "replace"), "text/plain; charset=utf-8")

    def pixels(self, row: int) -> Pixels:
        raise UnreadableError(f"line {row + 1} is a text, not a picture.")


def _csv_lines(path: Path) -> Iterator[tuple[int, object]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        if "text" not in (reader.fieldnames or ()):
            raise InputError(f"line 1 of {path} has no column 'text'; it must be a header with that name in it.")
        for fields in reader:
            yield reader.line_num, fields["text"]


def _json_lines(path: Path) -> Iterator[tuple[int, object]]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    found = json.loads(line)
                except (ValueError, RecursionError):
                    found = None
                yield number, found.get("text") if isinstance(found, dict) else found


def _fault(text: object) -> str | None:
    if not isinstance(text, str) or not text.strip():
        return "holds no text."
    if len(text) > LONGEST_TEXT:
        return f"has {len(text):,} letters; at most {LONGEST_TEXT:,} are shown."
    return None
