"""Opens the sources of samples: folders, arrays, tables, texts.

Neither a sample's id nor its shown form contains anything of its label.
"""

from __future__ import annotations

import csv
import os
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.data.datasets import names_in_npz, read_idx, read_npz
from truthfl.learning.tasks.task import ReadSamples, Task
from truthfl.learning.tasks.task_choice import TaskChoice
from truthfl.samples.folder import open_folder
from truthfl.samples.pixels import as_picture, as_png, fitted
from truthfl.samples.sample import (
    MAX_PIXELS,
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


def open_npz(path: Path) -> Source:
    """Open the array `images` of an .npz file; other arrays in it are ignored."""
    return _source(path, read_npz(path, ["images"])["images"])


def open_idx(path: Path) -> Source:
    """Open an idx file of bytes in three dimensions, plain or gzipped, such as MNIST's pictures."""
    return _source(path, read_idx(path, 3))


class ArrayReader:
    """Reads samples from the rows of an array."""

    def __init__(self, images: Pixels) -> None:
        self.images = images

    def file(self, row: int) -> BinaryIO:
        return BytesIO(as_png(self.images[row]))

    def media(self, row: int) -> Media:
        return Media(as_png(self.images[row]), "image/png")

    def pixels(self, row: int, shape: Shape | None = None) -> Pixels:
        pixels = np.asarray(self.images[row])
        return pixels if shape in (None, pixels.shape) else fitted(as_picture(pixels), shape)


def _source(path: Path, images: NDArray[Any]) -> Source:
    if images.dtype != np.uint8:
        raise InputError(f"the images in {path} are of type {images.dtype}; they must be uint8, from 0 to 255.")
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or 0 in images.shape[1:] or images.shape[3] not in (1, 3):
        raise InputError(
            f"the images in {path} have shape {images.shape}; it must be (count, height, width) or, with 1 or 3 "
            "channels, (count, height, width, channels)."
        )
    if images.shape[1] * images.shape[2] > MAX_PIXELS:
        raise InputError(
            f"the images in {path} are of {images.shape[2]:,}×{images.shape[1]:,} pixels; that is too many."
        )
    shape = repr(images.shape[1:]).encode()
    contents = [content_id(shape, np.ascontiguousarray(image).data) for image in images]
    rows = range(len(images))
    samples = samples_with_unique_ids(contents, [f"row {row}" for row in rows], rows)
    return require_samples(Source(str(path), "picture", samples, (), ArrayReader(images)), "at least one picture")


class TextReader:
    """Reads samples from a list of their shown forms."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def file(self, row: int) -> BinaryIO:
        return BytesIO(self.texts[row].encode("utf-8", "replace"))

    def media(self, row: int) -> Media:
        return Media(self.file(row).read(), "text/plain; charset=utf-8")

    def pixels(self, row: int, shape: Shape | None = None) -> Pixels:  # noqa: ARG002
        raise UnreadableError(f"sample {row + 1} is no picture.")


def read_by(task: Task, data: Path) -> ReadSamples:
    """The samples that a task reads from a file or folder; there must be at least one."""
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
    """The kind of samples: texts, or rows for all others."""
    return "text" if read.raw.ndim == 1 and all(isinstance(one, str) for one in read.raw) else "row"


def open_samples(path: str | os.PathLike[str], task: Task | None = None, home: Path | None = None) -> Source:
    """Open a folder of PNG or JPEG files, an .npz or idx file of pictures, or a file of texts or of a table's rows.

    A .csv file with a column `text` and a .jsonl file hold texts; other .csv files, .parquet files and .npz files with
    `rows` hold a table. `task` reads the file, if given. The hashes of large files are kept in `home`, if given.
    """
    location = Path(path)
    if not location.exists():
        raise InputError(f"{location} does not exist; name a folder of pictures, or a file of pictures, texts or rows.")
    if task is not None:
        return source_of(read_by(task, location), task, str(location))
    known = _task_of(location)
    if known is not None:
        return open_samples(location, TaskChoice(known).load())
    if location.is_dir():
        return open_folder(location, home)

    if location.suffix.lower() == ".npz":
        return open_npz(location)
    if "idx" in location.name.lower():
        return open_idx(location)
    raise InputError(
        f"{location} is of no known kind; it must be a folder of PNG or JPEG files, an .npz file, an idx file (with "
        "idx in its name), a .csv or .jsonl file of texts, or a .csv file of rows."
    )


def _task_of(location: Path) -> str | None:
    """The task that reads this file, "texts" or "tables", by its suffix and the names in it; None for pictures."""
    suffix = location.suffix.lower()
    if location.is_dir():
        return None
    if suffix == ".csv":
        return "texts" if _has_text_column(location) else "tables"
    if suffix == ".npz":
        return "tables" if "rows" in names_in_npz(location) else None
    return {".jsonl": "texts", ".parquet": "tables"}.get(suffix)


def _has_text_column(path: Path) -> bool:
    """Whether the first line of a .csv file names a column `text`."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return "text" in [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return False  # reading it as a table says what is wrong
