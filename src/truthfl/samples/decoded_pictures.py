"""Decoded pictures kept on disk: a process that opens the same folder again maps them and decodes none.

A participant's node answers each message in a new process, so what one process decoded is of no use to the next unless
it is in a file. The file is known by the names and content ids of all samples in their order: a picture that was added,
removed, changed or renamed makes it another one. It holds a SHA-256, a line of JSON and the pixels; if anything in it
is damaged, or it cannot be written, the pictures are decoded as if it were not there. Labels are not in it. Imports
`sample`, `pixels`, `files`.
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
from truthfl.samples.pixels import load
from truthfl.samples.sample import Problem, Source

CACHE = "cache/pictures.bin"
REVISION = 1  # one more when pictures are decoded to other pixels than before


def load_cached(source: Source, home: Path) -> tuple[Source, Images]:
    """What `load` gives; the pictures may be read-only."""
    path, key = home / CACHE, _key(source)
    found = _read(path, key, source)
    if found is None:
        found = load(source)
        with suppress(ServiceError):  # a full disk makes it slower, not wrong
            write_file(path, _content(key, source, *found), private=True, sync=False)
    return found


def _key(source: Source) -> str:
    known = [REVISION, source.kind, [(sample.id, sample.name) for sample in source.samples]]
    return sha256(json.dumps(known).encode()).hexdigest()


def _content(key: str, source: Source, readable: Source, images: Images) -> bytes:
    position = {sample.id: number for number, sample in enumerate(source.samples)}
    header = {
        "key": key,
        "kept": [position[sample.id] for sample in readable.samples],
        "problems": [(problem.name, problem.why) for problem in readable.problems[len(source.problems) :]],
        "shape": images.shape,
    }
    line = json.dumps(header).encode() + b"\n"
    digest = sha256(line)
    digest.update(images.data)
    return b"".join((digest.hexdigest().encode(), b"\n", line, images.data))


def _read(path: Path, key: str, source: Source) -> tuple[Source, Images] | None:
    """What the file holds; None where it is not there, is about other samples, or is damaged."""
    try:
        with path.open("rb") as file:
            digest, line = file.readline().strip().decode(), file.readline()
            header = json.loads(line)
            if header["key"] != key:
                return None
            pixels = np.asarray(np.memmap(file, np.uint8, "r", offset=file.tell()))
        found = sha256(line)
        found.update(pixels.data)
        if found.hexdigest() != digest:
            return None
        problems = [Problem(*told) for told in header["problems"]]
        return source.keeping(header["kept"], problems), pixels.reshape(header["shape"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
