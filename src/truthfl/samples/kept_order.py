"""In which order samples are asked for: those that were there first stay first. Imports `sample`, `files`.

An offer asks for a number of samples, the first ones. Were they the first by name, a file that is added during a job
would push another one out of them, and labels would be missing that nobody was asked for.
"""

from __future__ import annotations

import json
from pathlib import Path

from truthfl.errors import InputError
from truthfl.files import write_file
from truthfl.samples.sample import Source

FILE_NAME = "order.json"


def in_kept_order(source: Source, home: Path) -> Source:
    """The samples as they were ordered before, new ones after them; the order is kept in her folder."""
    file = home / FILE_NAME
    kept = _read(file)
    place = {sample: number for number, sample in enumerate(kept)}
    new = [sample for sample in source.ids if sample not in place]
    place |= {sample: len(kept) + number for number, sample in enumerate(new)}
    if new:
        write_file(file, json.dumps([*kept, *new]), sync=False)
    places = [place[sample] for sample in source.ids]
    return source.keeping(sorted(range(len(source)), key=places.__getitem__), ())


def _read(file: Path) -> list[str]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InputError(f"{file} cannot be read; it lists samples in their order, and may be deleted between jobs.")
    return found
