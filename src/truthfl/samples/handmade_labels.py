"""Labels that a participant made by hand, read from her label file. Imports `label_store`, `learning.model`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from truthfl.learning.model import Labels
from truthfl.samples.label_store import database_error

LOCK_WAIT_S = 10.0


def labels_of(path: str | os.PathLike[str], samples: Sequence[str], classes: Sequence[str]) -> Labels | None:
    """One label per sample, as an index into `classes`, in the samples' order; None until all of them are labeled.

    path     the label file, an SQLite database with the view `labels (sample, label)`
    samples  ids
    classes  names; a label that is not among them counts as missing
    """
    file = Path(path)
    if not file.exists():
        return None
    index = {name: position for position, name in enumerate(classes)}
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=LOCK_WAIT_S)) as database:
            names = dict(database.execute("SELECT sample, label FROM labels"))
    except sqlite3.Error as error:
        raise database_error(error, f"{file} cannot be read as a file of labels") from None
    labels = [index.get(names.get(sample, ""), -1) for sample in samples]
    return None if -1 in labels else np.array(labels, dtype=np.int64)
