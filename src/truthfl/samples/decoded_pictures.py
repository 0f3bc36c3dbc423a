"""Cache of decoded pictures: a process that opens the same folder again maps a file and decodes nothing.

The file's key is a hash of the names and content ids of all samples in order: it is written again when a picture is
added, removed, changed or renamed. It holds no labels. If it is damaged or cannot be written, the pictures are decoded.
Imports `array_cache`, `sample`, `pixels`, `learning.model`.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

from truthfl.learning.model import Images
from truthfl.samples.array_cache import read_cached, write_cached
from truthfl.samples.pixels import load_pictures
from truthfl.samples.sample import Problem, Source

CACHE = "cache/pictures.bin"
REVISION = 2  # to be increased when the decoder gives other pixels than before, or the file gets another form


def load_cached(source: Source, home: Path) -> tuple[Source, Images]:
    """The same as `load_pictures`, from the cache in `home` if it is valid; the array may be read-only."""
    path, key = home / CACHE, _key(source)
    loaded = _read(path, key, source)
    if loaded is None:
        loaded = load_pictures(source)
        _write(path, key, source, *loaded)
    return loaded


def _key(source: Source) -> str:
    identity = [REVISION, source.kind, [(sample.id, sample.name) for sample in source.samples]]
    return sha256(json.dumps(identity).encode()).hexdigest()


def _write(path: Path, key: str, source: Source, readable: Source, images: Images) -> None:
    position = {sample.id: number for number, sample in enumerate(source.samples)}
    header = {
        "kept": [position[sample.id] for sample in readable.samples],
        "problems": [(problem.name, problem.reason) for problem in readable.problems[len(source.problems) :]],
    }
    write_cached(path, key, header, images)


def _read(path: Path, key: str, source: Source) -> tuple[Source, Images] | None:
    """Content of the cache file; None if it does not exist, has another key, or is damaged."""
    cached = read_cached(path, key)
    if cached is None:
        return None
    header, pixels = cached
    try:
        problems = [Problem(*fields) for fields in header["problems"]]
        return source.subset(header["kept"], problems), pixels
    except (KeyError, TypeError, IndexError):
        return None
