"""Pictures in one array: an .npz file with `images`, or an idx file. A sample's id is a hash of its pixels."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.array_files import read_idx, read_npz
from truthfl.samples.formats import MAX_PIXELS
from truthfl.samples.pixels import as_picture, as_png, fitted
from truthfl.samples.sample import Media, Pixels, Shape, Source, content_id, require_samples, samples_with_unique_ids


def open_npz(path: Path) -> Source:
    """Open the array `images` of an .npz file; other arrays in it are ignored."""
    return _source(path, read_npz(path, ["images"])["images"])


def open_idx(path: Path) -> Source:
    """Open an idx file of bytes in three dimensions, plain or gzipped, such as MNIST's pictures."""
    return _source(path, read_idx(path, 3))


class ArrayReader:
    """Reads samples from the rows of an array."""

    def __init__(self, images: Pixels) -> None:
        self.images = images

    def file(self, row: int) -> BinaryIO:
        return BytesIO(as_png(self.images[row]))

    def media(self, row: int) -> Media:
        return Media(as_png(self.images[row]), "image/png")

    def pixels(self, row: int, shape: Shape | None = None) -> Pixels:
        pixels = np.asarray(self.images[row])
        return pixels if shape in (None, pixels.shape) else fitted(as_picture(pixels), shape)


def _source(path: Path, images: NDArray[Any]) -> Source:
    if images.dtype != np.uint8:
        raise InputError(f"the images in {path} are of type {images.dtype}; they must be uint8, from 0 to 255.")
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or 0 in images.shape[1:] or images.shape[3] not in (1, 3):
        raise InputError(
            f"the images in {path} have shape {images.shape}; it must be (count, height, width) or, with 1 or 3 "
            "channels, (count, height, width, channels)."
        )
    if images.shape[1] * images.shape[2] > MAX_PIXELS:
        raise InputError(
            f"the images in {path} are of {images.shape[2]:,}×{images.shape[1]:,} pixels; that is too many."
        )
    shape = repr(images.shape[1:]).encode()
    contents = [content_id(shape, np.ascontiguousarray(image).data) for image in images]
    rows = range(len(images))
    samples = samples_with_unique_ids(contents, [f"row {row}" for row in rows], rows)
    return require_samples(Source(str(path), "picture", samples, (), ArrayReader(images)), "at least one picture")
