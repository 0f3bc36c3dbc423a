"""Stable order of samples: new samples go behind those that were there before.

An offer asks for the first n samples. If they were sorted by name, a file added during a job could push another one
out of the first n, and that new file would have no label.
"""

from __future__ import annotations

import json
from pathlib import Path

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.samples.sample import Source

FILE_NAME = "order.json"


def in_kept_order(source: Source, home: Path) -> Source:
    """The source with known samples in their stored order, new ones after them; the order is stored in `home`."""
    file = home / FILE_NAME
    stored = _read(file)
    rank = {sample: number for number, sample in enumerate(stored)}
    new = [sample for sample in source.ids if sample not in rank]
    rank |= {sample: len(stored) + number for number, sample in enumerate(new)}
    if new:
        write_file(file, json.dumps([*stored, *new]), sync=False)
    ranks = [rank[sample] for sample in source.ids]
    return source.subset(sorted(range(len(source)), key=ranks.__getitem__), ())


def _read(file: Path) -> list[str]:
    """The stored sample ids; empty if the file does not exist."""
    try:
        ids = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        ids = None
    if not isinstance(ids, list) or not all(isinstance(sample, str) for sample in ids):
        raise InputError(f"{file} cannot be read; it lists samples in their order, and may be deleted between jobs.")
    return ids
