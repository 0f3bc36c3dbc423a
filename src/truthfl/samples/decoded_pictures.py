"""Cache file of decoded pictures: a process that opens the same folder again maps it and decodes nothing.

A participant's node handles each message in a new process, so decoded pictures must be in a file to be reused. The
file's key is a hash of the names and content ids of all samples in order: it is written again when a picture is added,
removed, changed or renamed. It holds a SHA-256, a line of JSON and the pixels, no labels. If it is damaged or cannot
be written, the pictures are decoded. Imports `sample`, `pixels`, `files`, `learning.model`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np

from truthfl.errors import ServiceError
from truthfl.files import write_file
from truthfl.learning.model import Images
from truthfl.samples.pixels import load_pictures
from truthfl.samples.sample import Problem, Source

CACHE = "cache/pictures.bin"
REVISION = 1  # to be increased when the decoder gives other pixels than before


def load_cached(source: Source, home: Path) -> tuple[Source, Images]:
    """The same as `load_pictures`, from the cache in `home` if it is valid; the array may be read-only."""
    path, key = home / CACHE, _key(source)
    loaded = _read(path, key, source)
    if loaded is None:
        loaded = load_pictures(source)
        with suppress(ServiceError):  # without the cache the next process decodes again
            write_file(path, _content(key, source, *loaded), private=True, sync=False)
    return loaded


def _key(source: Source) -> str:
    identity = [REVISION, source.kind, [(sample.id, sample.name) for sample in source.samples]]
    return sha256(json.dumps(identity).encode()).hexdigest()


def _content(key: str, source: Source, readable: Source, images: Images) -> bytes:
    position = {sample.id: number for number, sample in enumerate(source.samples)}
    header = {
        "key": key,
        "kept": [position[sample.id] for sample in readable.samples],
        "problems": [(problem.name, problem.reason) for problem in readable.problems[len(source.problems) :]],
        "shape": images.shape,
    }
    line = json.dumps(header).encode() + b"\n"
    digest = sha256(line)
    digest.update(images.data)
    return b"".join((digest.hexdigest().encode(), b"\n", line, images.data))


def _read(path: Path, key: str, source: Source) -> tuple[Source, Images] | None:
    """Content of the cache file; None if it does not exist, has another key, or is damaged."""
    try:
        with path.open("rb") as file:
            expected, line = file.readline().strip().decode(), file.readline()
            header = json.loads(line)
            if header["key"] != key:
                return None
            pixels = np.asarray(np.memmap(file, np.uint8, "r", offset=file.tell()))
        digest = sha256(line)
        digest.update(pixels.data)
        if digest.hexdigest() != expected:
            return None
        problems = [Problem(*fields) for fields in header["problems"]]
        return source.subset(header["kept"], problems), pixels.reshape(header["shape"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
