"""Pictures as arrays for training, fitted to the size that a job asks for; a cache of decoded pictures.

Fitting scales a picture in proportion until it just fits, centres it on black, and converts it to grays or colours. A
picture that already has the size stays as it is. Pillow scales in whole numbers, so the bytes are the same on all
machines.

A node may handle each message in a new process, so decoded pictures are cached in a file: a SHA-256, a line of JSON and
the array's bytes, without labels. Its key is a hash of the names and content ids of all samples in order. If the file
is damaged or cannot be written, the pictures are decoded again. Small pictures of one size are cached as they are. For
other pictures, the cache records which can be read and, once a job names a shape, the pictures fitted to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from truthfl.coded_text import form_of, from_form, sentence_of
from truthfl.errors import InputError, ServiceError
from truthfl.files import write_file
from truthfl.learning.models.model import Images
from truthfl.samples.pictures import fitting_size, open_undecoded
from truthfl.samples.sample import Pixels, Problem, Shape, Source, UnreadableError


def load_pictures(source: Source, shape: Shape | None = None) -> tuple[Source, Images]:
    """The source without unreadable samples, and the pictures of the others, in the same order.

    shape   (height, width, channels) to which all are fitted; None: all must have the same size, and all get three
            channels if one has colours
    """
    require_pictures(source)
    if shape is not None:
        return _load_fitted(source, shape)
    return _load_as_they_are(source)


def require_pictures(source: Source) -> None:
    """Raise `InputError` if these samples are not pictures."""
    if source.kind != "picture":
        named = {"text": "texts", "row": "tables"}[source.kind]
        raise InputError(
            f"{source.place} holds {source.kind}s; a model is trained on pictures unless --task is {named}."
        )


def _load_fitted(source: Source, shape: Shape) -> tuple[Source, Images]:
    readable: list[int] = []
    problems: list[Problem] = []
    images = np.empty((len(source), *shape), dtype=np.uint8)
    for position, sample in enumerate(source.samples):
        try:
            images[len(readable)] = source.pixels(position, shape)
            readable.append(position)
        except UnreadableError as error:
            problems.append(Problem(sample.name, sentence_of(error)))
    if not readable:
        raise none_readable(source, problems)
    return source.subset(readable, problems), images[: len(readable)]


def _load_as_they_are(source: Source) -> tuple[Source, Images]:
    readable: list[int] = []
    arrays: list[Pixels] = []
    problems: list[Problem] = []
    for position, sample in enumerate(source.samples):
        try:
            array = source.pixels(position)
        except UnreadableError as error:
            problems.append(Problem(sample.name, sentence_of(error)))
            continue
        if arrays and array.shape[:2] != arrays[0].shape[:2]:
            raise InputError(difference(source, readable[0], arrays[0], position, array))
        readable.append(position)
        arrays.append(array)
    if not arrays:
        raise none_readable(source, problems)
    return source.subset(readable, problems), stacked(arrays)


def difference(source: Source, first: int, one: Pixels, second: int, other: Pixels) -> str:
    """A sentence with the sizes of two pictures."""
    names = source.samples[second].name, source.samples[first].name
    return (
        f"{names[0]} has {_size(other)} pixels and {names[1]} {_size(one)}; without a shape that they are fitted to, "
        f"all pictures must be of one size ({source.place})."
    )


def none_readable(source: Source, problems: list[Problem]) -> InputError:
    """The error if no picture can be read."""
    return InputError(f"{source.place} has no picture that can be read; the first says: {problems[0].reason}")


def fitted(picture: Image.Image, shape: Shape) -> Pixels:
    """A decoded picture, scaled in proportion to fit into this shape and centred on black."""
    height, width, channels = shape
    mode = "L" if channels == 1 else "RGB"
    size = fitting_size(picture.size, (width, height))
    scaled = picture if picture.size == size else picture.resize(size, Image.Resampling.BILINEAR)
    scaled = scaled if scaled.mode == mode else scaled.convert(mode)
    if size != (width, height):
        whole = Image.new(mode, (width, height))
        whole.paste(scaled, ((width - size[0]) // 2, (height - size[1]) // 2))
        scaled = whole
    return pixels_of(scaled)


def stacked(arrays: list[Pixels]) -> Images:
    channels = max(array.shape[2] for array in arrays)
    images = np.empty((len(arrays), *arrays[0].shape[:2], channels), dtype=np.uint8)
    for row, array in enumerate(arrays):
        images[row] = array
    return images


def pixels_of(picture: Image.Image) -> Pixels:
    """A decoded picture as an array: (height, width, 1) of grays or (height, width, 3) of colours."""
    flat = np.asarray(picture, dtype=np.uint8)
    return flat[..., None] if flat.ndim == 2 else flat


def as_png(pixels: Pixels) -> bytes:
    """An array of grays or colours as a PNG file."""
    target = BytesIO()
    as_picture(pixels).save(target, "PNG", compress_level=1)
    return target.getvalue()


def as_picture(pixels: Pixels) -> Image.Image:
    """An array of grays or colours as a Pillow image."""
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels))


def _size(array: Pixels) -> str:
    return f"{array.shape[1]}×{array.shape[0]}"


TYPES = ("|u1", "<f4")


def write_cached(path: Path, key: str, header: Mapping[str, Any], array: NDArray[Any]) -> None:
    """Write an array of bytes or of float32, with JSON values; a disk that cannot be written is no error."""
    values = {"key": key, **header, "shape": array.shape, "type": array.dtype.str}
    line, data = json.dumps(values).encode() + b"\n", np.ascontiguousarray(array).data
    digest = sha256(line)
    digest.update(data)
    with suppress(ServiceError):  # without the cache the next process computes again
        write_file(path, b"".join((digest.hexdigest().encode(), b"\n", line, data)), private=True, sync=False)


def read_cached(path: Path, key: str) -> tuple[dict[str, Any], NDArray[Any]] | None:
    """The JSON values and the read-only array; None if the file is missing, is damaged or has another key."""
    try:
        with path.open("rb") as file:
            expected, line = file.readline().strip().decode(), file.readline()
            header = json.loads(line)
            if header["key"] != key or header["type"] not in TYPES:
                return None
            content = np.asarray(np.memmap(file, np.uint8, "r", offset=file.tell()))
        digest = sha256(line)
        digest.update(content.data)
        if digest.hexdigest() != expected:
            return None
        return header, content.view(header["type"]).reshape(header["shape"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


CACHE, FITTED_CACHE = "cache/pictures.bin", "cache/fitted.bin"
REVISION = 5  # increase it when the decoder's pixels or the file's form change
CHECKED_SHAPE = (64, 64, 3)  # the shape to which a picture is fitted just to see that it can be read
KEPT_BYTES = 100_000_000  # of pictures kept as they are; larger ones are kept only when a job names a shape
KEPT_PIXELS = 4_000_000  # of one picture kept as it is; larger ones may need too much memory to decode in full


@dataclass(frozen=True, eq=False)
class DecodedPictures:
    """The readable pictures of a folder.

    source      without unreadable pictures
    home        folder of the cache
    as_they_are the pictures, if they are small and of one size
    why_not     a sentence that says why `as_they_are` is missing; "" otherwise
    """

    source: Source
    home: Path
    as_they_are: Images | None
    why_not: str = ""

    def of_shape(self, shape: Shape, *, fit: bool) -> Images:
        """The pictures, all of this shape; `InputError` if they have another shape and must not be fitted."""
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
    """Find the readable pictures, from the cache in `home` if it is valid; arrays may be read-only."""
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
    """A sentence if pictures are too large to be kept as they are, in any order; "" otherwise."""
    bytes_of_all = 0
    for position, sample in enumerate(source.samples):
        try:
            with source.file(position) as file:
                width, height = open_undecoded(file, sample.name)[0].size
        except UnreadableError:
            continue  # reported when it is decoded
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
    """The cache file's content; None if it is damaged."""
    try:
        problems = [Problem(name, from_form(reason, form)) for name, reason, form in header["problems"]]
        why_not = str(header["why_not"])
        return DecodedPictures(source.subset(header["kept"], problems), home, None if why_not else pixels, why_not)
    except (KeyError, TypeError, IndexError, ValueError):
        return None
