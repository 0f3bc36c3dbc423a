"""Pictures in one array: an .npz file with `images`, or an idx file. Looks at `sample`, `pictures`, `pixels`.

A picture is known by its pixels; how large the array is is read and held against the limit before it is unpacked.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.samples.formats import MOST_PIXELS
from truthfl.samples.pixels import as_png
from truthfl.samples.sample import Pixels, Shown, Source, content_id, numbered, require_some

MOST_UNPACKED = 4_000_000_000
IDX_OF_BYTES = 0x08


def open_npz(path: Path) -> Source:
    """The array `images` of an .npz file; other arrays in it are not looked at."""
    try:
        with zipfile.ZipFile(path) as archive:
            inside = next((one for one in archive.infolist() if one.filename == "images.npy"), None)
            if inside is None:
                raise InputError(f"{path} has no array 'images'; save it with numpy.savez(path, images=...).")
            _require_within(path, inside.file_size)
        with np.load(path, allow_pickle=False) as arrays:
            images = arrays["images"]
    except (OSError, EOFError, ValueError, RuntimeError, MemoryError, zlib.error, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read; it must be an .npz file of plain arrays.") from None
    return _source(path, images)


def open_idx(path: Path) -> Source:
    """An idx file of bytes in three dimensions, plain or gzipped: as MNIST's pictures come."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                content = file.read(MOST_UNPACKED + 1)
            _require_within(path, len(content))
            data: NDArray[np.uint8] = np.frombuffer(content, np.uint8)
        else:
            data = np.memmap(path, dtype=np.uint8, mode="r")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} cannot be read; it must be an idx file of pictures.") from None
    if len(data) < 16 or bytes(data[:4]) != bytes((0, 0, IDX_OF_BYTES, 3)):
        raise InputError(f"{path} does not begin like an idx file of pictures: bytes in 3 dimensions.")
    shape = tuple(int(size) for size in np.frombuffer(bytes(data[4:16]), ">u4"))
    if int(np.prod(shape, dtype=object)) != len(data) - 16:
        raise InputError(f"{path} has {len(data) - 16:,} bytes of pictures and announces {shape}; it is cut off.")
    return _source(path, data[16:].reshape(shape))


class ArrayReader:
    """Gives the rows of an array."""

    def __init__(self, images: Pixels) -> None:
        self.images = images

    def shown(self, row: int) -> Shown:
        return Shown(as_png(self.images[row]), "image/png")

    def pixels(self, row: int) -> Pixels:
        return np.asarray(self.images[row])


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
    if images.shape[1] * images.shape[2] > MOST_PIXELS:
        raise InputError(
            f"the images in {path} are of {images.shape[2]:,}×{images.shape[1]:,} pixels; that is too many."
        )
    shape = repr(images.shape[1:]).encode()
    contents = [content_id(shape, np.ascontiguousarray(image).data) for image in images]
    rows = range(len(images))
    samples = numbered(contents, [f"row {row}" for row in rows], rows)
    return require_some(Source(str(path), "picture", samples, (), ArrayReader(images)), "at least one picture")


def _require_within(path: Path, size: int) -> None:
    if size > MOST_UNPACKED:
        raise InputError(f"{path} would unpack to over {MOST_UNPACKED / 1e9:.0f} GB; split it into several files.")
