"""Open a folder or file of samples, whatever its format. Imports `sample`; `folder`, `arrays`, `texts` when needed."""

from __future__ import annotations

import os
from pathlib import Path

from truthfl.errors import InputError
from truthfl.samples.sample import Source


def open_samples(path: str | os.PathLike[str]) -> Source:
    """Open a folder of PNG or JPEG files, an .npz or idx file of pictures, or a .csv or .jsonl file of texts."""
    location = Path(path)
    if not location.exists():
        raise InputError(f"{location} does not exist; name a folder of pictures or a file of pictures or texts.")
    if location.is_dir():
        from truthfl.samples.folder import open_folder

        return open_folder(location)
    suffix = location.suffix.lower()
    if suffix in (".csv", ".jsonl"):
        from truthfl.samples.texts import open_texts

        return open_texts(location)
    from truthfl.samples.arrays import open_idx, open_npz

    if suffix == ".npz":
        return open_npz(location)
    if "idx" in location.name.lower():
        return open_idx(location)
    raise InputError(
        f"{location} is of no known kind; it must be a folder of PNG or JPEG files, an .npz file, an idx file (with "
        "idx in its name), or a .csv or .jsonl file of texts."
    )
