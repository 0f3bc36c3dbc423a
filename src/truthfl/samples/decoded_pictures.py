"""Cache of decoded pictures: a process that opens the same folder again maps a file and decodes nothing.

A file's key is a hash of the names and content ids of all samples in order: it is written again when a picture is
added, removed, changed or renamed. It holds no labels. If it is damaged or cannot be written, the pictures are decoded.
Pictures of one size that are small together are kept as they are; of others it is kept which can be read, and once a
job says a shape, the pictures fitted to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.coded_text import form_of, from_form, sentence_of
from truthfl.errors import InputError
from truthfl.learning.model import Images
from truthfl.samples.array_cache import read_cached, write_cached
from truthfl.samples.pictures import open_undecoded
from truthfl.samples.pixels import difference, load_pictures, none_readable, require_pictures, stacked
from truthfl.samples.sample import Pixels, Problem, Shape, Source, UnreadableError

CACHE, FITTED_CACHE = "cache/pictures.bin", "cache/fitted.bin"
REVISION = 5  # to be increased when the decoder gives other pixels than before, or the file gets another form
CHECKED_SHAPE = (64, 64, 3)  # to which a picture is fitted only to know that it can be read
KEPT_BYTES = 100_000_000  # of pictures that are kept as they are; larger ones only when a job says a shape
KEPT_PIXELS = 4_000_000  # of one picture that is kept as it is; larger ones may take too much memory to decode in full


@dataclass(frozen=True, eq=False)
class DecodedPictures:
    """The readable pictures of a folder.

    source      without those that cannot be read
    home        folder of the cache
    as_they_are the pictures, if they are of one size, and small
    why_not     a sentence that says why they are not there; "" otherwise
    """

    source: Source
    home: Path
    as_they_are: Images | None
    why_not: str = ""

    def of_shape(self, shape: Shape, *, fit: bool) -> Images:
        """The pictures, all of this shape; `InputError` if they are of another one and must not be fitted."""
        own = self.as_they_are
        if own is not None and own.shape[1:] == shape:
            return own
        if not fit:
            found = self.why_not if own is None else f"your pictures are {list(own.shape[1:])}."
            raise InputError(f"the offer asks for pictures of shape {list(shape)}, and does not fit others; {found}")
        path, key = self.home / FITTED_CACHE, _key(self.source, shape)
        cached = read_cached(path, key)
        if cached is not None:
            return cached[1]
        readable, images = load_pictures(self.source, shape)
        if len(readable) < len(self.source):
            raise InputError(readable.problems[-1].reason)
        write_cached(path, key, {}, images)
        return images


def load_cached(source: Source, home: Path) -> DecodedPictures:
    """Find out which pictures can be read, from the cache in `home` if it is valid; arrays may be read-only."""
    path, key = home / CACHE, _key(source)
    cached = read_cached(path, key)
    loaded = None if cached is None else _from_cache(source, home, *cached)
    if loaded is None:
        loaded = _decode_all(source, home)
        _write(path, key, source, loaded)
    return loaded


def _decode_all(source: Source, home: Path) -> DecodedPictures:
    """Decode each picture once; keep them as long as they are of one size and small."""
    require_pictures(source)
    readable: list[int] = []
    problems: list[Problem] = []
    kept: list[Pixels] = []
    why_not = _too_large(source)
    for position, sample in enumerate(source.samples):
        try:
            pixels = source.pixels(position, CHECKED_SHAPE if why_not else None)
        except UnreadableError as error:
            problems.append(Problem(sample.name, sentence_of(error)))
            continue
        if not why_not and kept and pixels.shape[:2] != kept[0].shape[:2]:
            why_not = difference(source, readable[0], kept[0], position, pixels)
        readable.append(position)
        if why_not:
            kept.clear()
        else:
            kept.append(pixels)
    if not readable:
        raise none_readable(source, problems)
    return DecodedPictures(source.subset(readable, problems), home, stacked(kept) if kept else None, why_not)


def _too_large(source: Source) -> str:
    """A sentence if pictures are too large to be kept as they are, whatever their order; "" otherwise."""
    bytes_of_all = 0
    for position, sample in enumerate(source.samples):
        try:
            with source.file(position) as file:
                width, height = open_undecoded(file, sample.name)[0].size
        except UnreadableError:
            continue  # it is told when it is decoded
        bytes_of_all += 3 * width * height
        if width * height > KEPT_PIXELS or bytes_of_all > KEPT_BYTES:
            return f"{sample.name} has {width}×{height} pixels."
    return ""


def _key(source: Source, shape: Shape | None = None) -> str:
    identity = [REVISION, source.kind, [(sample.id, sample.name) for sample in source.samples], shape]
    return sha256(json.dumps(identity).encode()).hexdigest()


def _write(path: Path, key: str, source: Source, loaded: DecodedPictures) -> None:
    position = {sample.id: number for number, sample in enumerate(source.samples)}
    header = {
        "kept": [position[sample.id] for sample in loaded.source.samples],
        "problems": [
            (problem.name, problem.reason, form_of(problem.reason))
            for problem in loaded.source.problems[len(source.problems) :]
        ],
        "why_not": loaded.why_not,
    }
    none = np.zeros(1, dtype=np.uint8)  # an empty file cannot be mapped
    write_cached(path, key, header, none if loaded.as_they_are is None else loaded.as_they_are)


def _from_cache(source: Source, home: Path, header: Mapping[str, Any], pixels: NDArray[Any]) -> DecodedPictures | None:
    """What the cache file says; None if it is damaged."""
    try:
        problems = [Problem(name, from_form(reason, form)) for name, reason, form in header["problems"]]
        why_not = str(header["why_not"])
        return DecodedPictures(source.subset(header["kept"], problems), home, None if why_not else pixels, why_not)
    except (KeyError, TypeError, IndexError, ValueError):
        return None
