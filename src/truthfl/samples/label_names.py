"""The names of a participant's labels, read from her label file, and those that are not among a job's classes.

NumPy is not loaded, so that the page starts at once.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from truthfl.learning.class_sets import are_known
from truthfl.samples.label_store import database_error
from truthfl.texts import plain

LOCK_WAIT_S = 10.0
SHOWN_CLASSES = 5

Other = Mapping[str, int]  # by class: number of labels


def label_names(path: str | os.PathLike[str]) -> dict[str, str]:
    """By sample: the name of its label; empty if there is no file."""
    file = Path(path)
    if not file.exists():
        return {}
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=LOCK_WAIT_S)) as database:
            return dict(database.execute("SELECT sample, label FROM labels"))
    except sqlite3.Error as error:
        raise database_error(error, f"{file} cannot be read as a file of labels") from None


def other_labels(
    path: str | os.PathLike[str],
    classes: Sequence[str],
    samples: Sequence[str] | None = None,
    *,
    several: bool = False,
) -> Other:
    """How many labels are there of classes that are not among these, by class, the most frequent first.

    samples   ids; None for all in the file
    """
    names = label_names(path)
    chosen = names.values() if samples is None else (names[sample] for sample in samples if sample in names)
    known = set(classes)
    return dict(Counter(label for label in chosen if not are_known(label, known, several=several)).most_common())


def other_labels_in_words(other: Other, classes: Sequence[str]) -> str:
    """A sentence that says which labels of other classes there are."""
    count, listed = sum(other.values()), ", ".join(list(other)[:SHOWN_CLASSES])
    more = f" and {len(other) - SHOWN_CLASSES} more" if len(other) > SHOWN_CLASSES else ""
    named = ", ".join(classes[:SHOWN_CLASSES]) + (", …" if len(classes) > SHOWN_CLASSES else "")
    are = "label is of a class that is" if count == 1 else "labels are of classes that are"
    return (
        f"{count:,} {are} not among {plain(named, 300)}: {plain(listed, 300)}{more}. They are kept, and their samples "
        "count as not labeled until they get another label."
    )
