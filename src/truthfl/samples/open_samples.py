"""Open a folder or file of samples, whatever its format."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING

from truthfl.errors import InputError
from truthfl.samples.sample import Source

if TYPE_CHECKING:  # the page starts without NumPy
    from truthfl.learning.task import Task


def open_samples(path: str | os.PathLike[str], task: Task | None = None, home: Path | None = None) -> Source:
    """Open a folder of PNG or JPEG files, an .npz or idx file of pictures, or a file of texts or of a table's rows.

    A .csv file with a column `text` and a .jsonl file hold texts; other .csv files, .parquet files and .npz files with
    `rows` hold a table. `task` reads the file, if given. In `home`, if given, it is kept which large files were hashed.
    """
    location = Path(path)
    if not location.exists():
        raise InputError(f"{location} does not exist; name a folder of pictures, or a file of pictures, texts or rows.")
    if task is not None:
        from truthfl.samples.task_samples import read_by, source_of

        return source_of(read_by(task, location), task, str(location))
    known = _task_of(location)
    if known is not None:
        from truthfl.learning.task_choice import TaskChoice

        return open_samples(location, TaskChoice(known).load())
    if location.is_dir():
        from truthfl.samples.folder import open_folder

        return open_folder(location, home)
    from truthfl.samples.arrays import open_idx, open_npz

    if location.suffix.lower() == ".npz":
        return open_npz(location)
    if "idx" in location.name.lower():
        return open_idx(location)
    raise InputError(
        f"{location} is of no known kind; it must be a folder of PNG or JPEG files, an .npz file, an idx file (with "
        "idx in its name), a .csv or .jsonl file of texts, or a .csv file of rows."
    )


def _task_of(location: Path) -> str | None:
    """The task that reads this file, "texts" or "tables", by its end and the names in it; None for pictures."""
    suffix = location.suffix.lower()
    if location.is_dir():
        return None
    if suffix == ".csv":
        return "texts" if _has_text_column(location) else "tables"
    if suffix == ".npz":
        from truthfl.learning.array_files import names_in_npz

        return "tables" if "rows" in names_in_npz(location) else None
    return {".jsonl": "texts", ".parquet": "tables"}.get(suffix)


def _has_text_column(path: Path) -> bool:
    """Whether the first line of a .csv file names a column `text`."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return "text" in [name.strip() for name in next(csv.reader(file), [])]
    except (OSError, UnicodeDecodeError, csv.Error):
        return False  # reading it as a table says what is wrong
