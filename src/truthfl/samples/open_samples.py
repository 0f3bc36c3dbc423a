"""Open what is to be labeled, whatever it lies in. Looks at `folder`, `arrays`, `texts`."""

from __future__ import annotations

import os
from pathlib import Path

from truthfl.errors import InputError
from truthfl.samples.sample import Source


def open_samples(path: str | os.PathLike[str]) -> Source:
    """A folder of PNG or JPEG files, an .npz or idx file of pictures, or a .csv or .jsonl file of texts."""
    place = Path(path)
    if not place.exists():
        raise InputError(f"{place} does not exist; name a folder of pictures or a file of pictures or texts.")
    if place.is_dir():
        from truthfl.samples.folder import open_folder

        return open_folder(place)
    ending = place.suffix.lower()
    if ending in (".csv", ".jsonl"):
        from truthfl.samples.texts import open_texts

        return open_texts(place)
    from truthfl.samples.arrays import open_idx, open_npz

    if ending == ".npz":
        return open_npz(place)
    if "idx" in place.name.lower():
        return open_idx(place)
    raise InputError(
        f"{place} is of no known kind; it must be a folder of PNG or JPEG files, an .npz file, an idx file (with "
        "idx in its name), or a .csv or .jsonl file of texts."
    )
