"""Pictures as arrays, for training. Imports `sample`, `pictures`, `learning.model`."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image

from truthfl.errors import InputError
from truthfl.learning.model import Images
from truthfl.samples.pictures import upright_and_opaque
from truthfl.samples.sample import Pixels, Problem, Source, UnreadableError


def load_pictures(source: Source) -> tuple[Source, Images]:
    """The source without unreadable samples, and the pictures of the others, in the same order.

    All pictures must have the same size. If one has colours, all get three channels.
    """
    if source.kind != "picture":
        named = {"text": "texts", "row": "tables"}[source.kind]
        raise InputError(
            f"{source.place} holds {source.kind}s; a model is trained on pictures unless --task is {named}."
        )
    readable: list[int] = []
    arrays: list[Pixels] = []
    problems: list[Problem] = []
    for position, sample in enumerate(source.samples):
        try:
            array = source.pixels(position)
        except UnreadableError as error:
            problems.append(Problem(sample.name, str(error)))
            continue
        if arrays and array.shape[:2] != arrays[0].shape[:2]:
            first = source.samples[readable[0]].name
            raise InputError(
                f"{sample.name} has {_size(array)} pixels and {first} {_size(arrays[0])}; in one job, all pictures "
                f"must be of one size ({source.place})."
            )
        readable.append(position)
        arrays.append(array)
    if not arrays:
        raise InputError(f"{source.place} has no picture that can be read; the first says: {problems[0].reason}")
    return source.subset(readable, problems), _stacked(arrays)


def _stacked(arrays: list[Pixels]) -> Images:
    channels = max(array.shape[2] for array in arrays)
    images = np.empty((len(arrays), *arrays[0].shape[:2], channels), dtype=np.uint8)
    for row, array in enumerate(arrays):
        images[row] = array
    return images


def pixels_of(image: Image.Image, name: str) -> Pixels:
    """The pixels that the page shows: (height, width, 1) of grays or (height, width, 3) of colours."""
    flat = np.asarray(upright_and_opaque(image, name), dtype=np.uint8)
    return flat[..., None] if flat.ndim == 2 else flat


def as_png(pixels: Pixels) -> bytes:
    """An array of grays or colours as a PNG file."""
    target = BytesIO()
    flat = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    Image.fromarray(np.ascontiguousarray(flat)).save(target, "PNG", compress_level=1)
    return target.getvalue()


def _size(array: Pixels) -> str:
    return f"{array.shape[1]}×{array.shape[0]}"
