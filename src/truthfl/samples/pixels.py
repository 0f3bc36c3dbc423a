"""Pictures as arrays, for training, and how they are fitted to the size that a job asks for.

Fitted: scaled, with its proportions, until it just fits in, in the middle of black; in grays or colours as asked for. A
picture of that size already stays as it is. Pillow scales in whole numbers, so the bytes are the same on all machines.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from truthfl.coded_text import sentence_of
from truthfl.errors import InputError
from truthfl.learning.model import Images
from truthfl.samples.pictures import fitting_size
from truthfl.samples.sample import Pixels, Problem, Shape, Source, UnreadableError


def load_pictures(source: Source, shape: Shape | None = None) -> tuple[Source, Images]:
    """The source without unreadable samples, and the pictures of the others, in the same order.

    shape   (height, width, channels) that all are fitted to; None: all must have the same size, and if one has colours,
            all get three channels
    """
    require_pictures(source)
    if shape is not None:
        return _load_fitted(source, shape)
    return _load_as_they_are(source)


def require_pictures(source: Source) -> None:
    """Raise `InputError` if these samples are no pictures."""
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
    """A sentence that says of which sizes two pictures are."""
    names = source.samples[second].name, source.samples[first].name
    return (
        f"{names[0]} has {_size(other)} pixels and {names[1]} {_size(one)}; without a shape that they are fitted to, "
        f"all pictures must be of one size ({source.place})."
    )


def none_readable(source: Source, problems: list[Problem]) -> InputError:
    """The error that no picture can be read."""
    return InputError(f"{source.place} has no picture that can be read; the first says: {problems[0].reason}")


def fitted(picture: Image.Image, shape: Shape) -> Pixels:
    """A decoded picture, scaled with its proportions to fit into this shape, in the middle of black."""
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
    """An array of grays or colours as Pillow's picture."""
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels))


def _size(array: Pixels) -> str:
    return f"{array.shape[1]}×{array.shape[0]}"
