"""Labels that a person made by hand, from the file her page keeps. Imports `label_store`.

The file is SQLite's and has a view `labels (sample, label)`; how it came to be is the labeling room's business.
"""

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
    """One label per sample, as a position in `classes`, in the samples' order; None until all of them are labeled.

    Samples are named by their ids. A label that is none of these classes is none.
    """
    file = Path(path)
    if not file.exists():
        return None
    number = {name: position for position, name in enumerate(classes)}
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=LOCK_WAIT_S)) as database:
            found = dict(database.execute("SELECT sample, label FROM labels"))
    except sqlite3.Error as error:
        raise database_error(error, f"{file} cannot be read as a file of labels") from None
    made = [number.get(found.get(sample, ""), -1) for sample in samples]
    return None if -1 in made else np.array(made, dtype=np.int64)
