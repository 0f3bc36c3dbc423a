"""Labels that a participant made by hand, read from her label file.

Imports `label_store`, `learning.model` and `texts`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from truthfl.errors import InputError
from truthfl.learning.model import Labels
from truthfl.samples.label_store import database_error
from truthfl.texts import plain

LOCK_WAIT_S = 10.0


def labels_of(path: str | os.PathLike[str], samples: Sequence[str], classes: Sequence[str]) -> Labels | None:
    """One label per sample, as an index into `classes`, in the samples' order; None until all of them are labeled.

    path     the label file, an SQLite database with the view `labels (sample, label)`
    samples  ids
    classes  names; a label that is not among them counts as missing
    """
    names = _names(path)
    index = {name: position for position, name in enumerate(classes)}
    labels = [index.get(names.get(sample, ""), -1) for sample in samples]
    return None if -1 in labels else np.array(labels, dtype=np.int64)


def handmade_labels(path: str | os.PathLike[str], samples: Sequence[str], classes: Sequence[str]) -> Labels | None:
    """The same; `InputError` if a sample has a label that is not among the classes."""
    labels = labels_of(path, samples, classes)
    if labels is None:
        names, known = _names(path), set(classes)
        foreign = [names[sample] for sample in samples if names.get(sample, classes[0]) not in known]
        if foreign:
            raise InputError(
                f"{len(foreign)} of your labels {'are' if len(foreign) > 1 else 'is'} none of the job's classes, as is "
                f"{plain(repr(foreign[0]), 60)}; label these samples again."
            )
    return labels


def count_labels(path: str | os.PathLike[str], samples: Sequence[str], classes: Sequence[str]) -> int:
    """How many of these samples have a label that is among the classes."""
    names, known = _names(path), set(classes)
    return sum(names.get(sample) in known for sample in samples)


def _names(path: str | os.PathLike[str]) -> dict[str, str]:
    """By sample: the name of its label; empty if there is no file."""
    file = Path(path)
    if not file.exists():
        return {}
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=LOCK_WAIT_S)) as database:
            return dict(database.execute("SELECT sample, label FROM labels"))
    except sqlite3.Error as error:
        raise database_error(error, f"{file} cannot be read as a file of labels") from None
