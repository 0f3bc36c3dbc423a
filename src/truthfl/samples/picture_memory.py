"""How much memory decoding a picture takes, and a budget that all threads of this process share.

Figures are bytes per pixel as Pillow and its libraries allocate them, measured by `benchmarks.picture_memory`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from PIL import Image

from truthfl.coded_text import coded, decimal
from truthfl.samples.formats import GIF, HEIC, JPEG, TIFF, WEBP, PictureFormat
from truthfl.samples.sample import UnreadableError

BUDGET_BYTES = 178_000_000  # of all pictures that are being decoded at one time
RETURNED_FROM = 8_000_000  # bytes; after more than that, free memory is given back to the system
BLOCK_BYTES = 64 * 1024 * 1024  # of Pillow's blocks: large ones go back to the system, glibc keeps small ones
NARROW = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}  # bytes of a pixel; 4 in other modes
WEBP_PIXEL, HEIC_PIXEL = 12.5, 9  # bytes: frames of the decoder, and their copy


class MemoryBudget:
    """So many bytes, of which threads reserve a part while they decode; they wait for others to finish."""

    def __init__(self, total: int) -> None:
        self.total, self._free, self._changed = total, total, threading.Condition()

    @contextmanager
    def reserved(self, needed: int, name: str) -> Iterator[None]:
        """Hold so many bytes; raise `UnreadableError` at once if there are never so many. `name` is the picture's."""
        if needed > self.total:
            raise UnreadableError(
                coded(
                    "unreadable.needs",
                    "{name} takes {needed} MB of memory to decode; at most {most} MB are used: save it with fewer "
                    "pixels.",
                    name=name,
                    needed=decimal(needed / 1e6, 0),
                    most=decimal(self.total / 1e6, 0),
                )
            )
        with self._changed:
            self._changed.wait_for(lambda: self._free >= needed)
            self._free -= needed
        try:
            yield
        finally:
            if needed >= RETURNED_FROM:
                _return_free_memory()
            with self._changed:
                self._free += needed
                self._changed.notify_all()


BUDGET = MemoryBudget(BUDGET_BYTES)
Image.core.set_block_size(BLOCK_BYTES)  # type: ignore[attr-defined]


def pixel_bytes(mode: str) -> int:
    """Bytes of one pixel in Pillow's memory."""
    return NARROW.get(mode, 4)


def decoding_bytes(image: Any, kind: PictureFormat, full_size: tuple[int, int], file_bytes: int, scans: int = 1) -> int:
    """Bytes that Pillow takes to decode this picture, of which only the header was read.

    full_size   its size before a JPEG decoder was asked for a smaller version
    file_bytes  the file's size
    scans       of a JPEG file; with several, the decoder keeps all of the picture until the last
    """
    pixels, full = image.size[0] * image.size[1], full_size[0] * full_size[1]
    own: int = pixels * pixel_bytes(image.mode)
    if kind is WEBP:
        return int(full * WEBP_PIXEL) + 2 * file_bytes
    if kind is HEIC:
        return int(full * (HEIC_PIXEL + 4 * (image.mode == "RGBA"))) + 2 * file_bytes
    if kind is JPEG and ("progressive" in image.info or scans > 1):
        return own + 2 * int(full * _samples_per_pixel(image))
    if kind is TIFF:
        turned = own if image.getexif().get(0x0112, 1) != 1 else 0
        return own + turned + _compressed_bytes(image, full, file_bytes)
    return 2 * own if kind is GIF else own


def _samples_per_pixel(image: Any) -> float:
    """Values per pixel of a JPEG: 3 for colours, 1.5 if those of two of the three are halved on both sides."""
    sampling: list[tuple[int, int]] = [(across, down) for _, across, down, *_ in image.layer]
    most = max(across for across, _ in sampling) * max(down for _, down in sampling)
    return sum(across * down for across, down in sampling) / most


def _compressed_bytes(image: Any, pixels: int, file_bytes: int) -> int:
    """What libtiff takes beside the picture: the file, which it maps, and one strip or tile, up to the whole."""
    if image.info.get("compression") == "raw":
        return 0
    tags = image.tag_v2
    depth = tags.get(258, (8,))
    values = len(image.getbands()) * max(depth if isinstance(depth, tuple) else (depth,)) / 8
    if 322 in tags:
        strip = int(tags[322]) * int(tags.get(323, tags[322]))
    else:
        strip = min(int(tags.get(278, image.size[1])), image.size[1]) * image.size[0]
    return file_bytes + int(min(strip, pixels) * values)


def _return_free_memory() -> None:
    """Give memory that was freed back to the system; glibc would keep it for the thread that had it."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@lru_cache(maxsize=1)
def _malloc_trim() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    return getattr(ctypes.CDLL(None), "malloc_trim", None)
