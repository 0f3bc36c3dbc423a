"""Samples of a task: rows of a table and texts, which are shown in words.

Neither a sample's id nor what is shown of it has anything of its label.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from truthfl.errors import InputError
from truthfl.learning.task import ReadSamples, Task
from truthfl.samples.sample import (
    Kind,
    Media,
    Pixels,
    Problem,
    Shape,
    Source,
    UnreadableError,
    content_id,
    require_samples,
    samples_with_unique_ids,
)


class TextReader:
    """Reads samples from a list of what is shown of them."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def file(self, row: int) -> BinaryIO:
        return BytesIO(self.texts[row].encode("utf-8", "replace"))

    def media(self, row: int) -> Media:
        return Media(self.file(row).read(), "text/plain; charset=utf-8")

    def pixels(self, row: int, shape: Shape | None = None) -> Pixels:  # noqa: ARG002
        raise UnreadableError(f"sample {row + 1} is no picture.")


def read_by(task: Task, data: Path) -> ReadSamples:
    """The samples that a task reads from a file or folder; at least one."""
    if not data.exists():
        raise InputError(f"{data} does not exist; name the file of your samples.")
    read = task.read(data)
    if not len(read):
        raise InputError(f"{data} has no samples; it must have at least one.")
    return read


def source_of(read: ReadSamples, task: Task, place: str) -> Source:
    """The samples that a task read from a file, in the file's order; `place` is its path, for messages."""
    kind = kind_of(read)
    shown = [str(task.shown(read, row)).strip() for row in range(len(read))]
    contents = [content_id(f"{kind} ".encode(), text.encode("utf-8", "replace")) for text in shown]
    names = read.places or tuple(f"row {row + 1}" for row in range(len(read)))
    samples = samples_with_unique_ids(contents, names, range(len(read)))
    problems = tuple(Problem("", sentence) for sentence in read.problems)
    return require_samples(Source(place, kind, samples, problems, TextReader(shown)), "at least one sample")


def kind_of(read: ReadSamples) -> Kind:
    """Whether samples are texts; all others are rows."""
    return "text" if read.raw.ndim == 1 and all(isinstance(one, str) for one in read.raw) else "row"
