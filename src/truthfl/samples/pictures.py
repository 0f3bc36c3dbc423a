"""Decodes pictures as a browser shows them on white, within limits of size and memory.

A file's first bytes show its format, and Pillow's plugin for that format opens it. Size and memory follow from the
header and are checked against the limits before any pixel is decoded. `benchmarks.picture_memory` measured the bytes
per pixel. If a file has several pictures, the first counts.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from io import BytesIO
from typing import Any, BinaryIO

from PIL import Image

from truthfl.coded_text import coded, decimal, untranslated
from truthfl.samples.sample import (
    BMP,
    GIF,
    HEIC,
    JPEG,
    MAX_PIXELS,
    PNG,
    SIGNATURE_BYTES,
    TIFF,
    WEBP,
    PictureFormat,
    UnreadableError,
    needs_heif,
    no_picture,
    picture_format,
    reads_heic,
)

BUDGET_BYTES = 178_000_000  # of all pictures that are being decoded at one time
RETURNED_FROM = 8_000_000  # bytes; after more than this, free memory goes back to the system
BLOCK_BYTES = 64 * 1024 * 1024  # of Pillow's blocks: large ones go back to the system, glibc keeps small ones
NARROW = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}  # bytes of a pixel; 4 in other modes
WEBP_PIXEL, HEIC_PIXEL = 12.5, 9  # bytes: frames of the decoder, and their copy


class MemoryBudget:
    """A budget of bytes. Threads reserve a part of it while they decode, and wait for others to finish."""

    def __init__(self, total: int) -> None:
        self.total, self._free, self._changed = total, total, threading.Condition()

    @contextmanager
    def reserved(self, needed: int, name: str) -> Iterator[None]:
        """Hold this many bytes; raise `UnreadableError` at once if the budget is smaller. `name` is the picture's."""
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
    """Bytes that Pillow needs to decode this picture; only the header has been read.

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
    """Values per pixel of a JPEG: 3 for colours; 1.5 if two of the three are halved in width and height."""
    sampling: list[tuple[int, int]] = [(across, down) for _, across, down, *_ in image.layer]
    most = max(across for across, _ in sampling) * max(down for _, down in sampling)
    return sum(across * down for across, down in sampling) / most


def _compressed_bytes(image: Any, pixels: int, file_bytes: int) -> int:
    """Bytes that libtiff needs beside the picture: the mapped file, and one strip or tile, up to the whole picture."""
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
    """Give freed memory back to the system; glibc would keep it for the thread that had it."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@lru_cache(maxsize=1)
def _malloc_trim() -> Any:
    if not sys.platform.startswith("linux"):
        return None

    return getattr(ctypes.CDLL(None), "malloc_trim", None)


GRAY_MODES = ("1", "L", "LA", "La", "I", "F")
TRANSPARENT_MODES = ("LA", "La", "RGBA", "RGBa", "PA")
STRIP_PIXELS = 1_000_000  # converted at a time, so that there is no second copy of a large picture
ORIENTATION = 0x0112  # the EXIF tag
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
ON_ITS_SIDE = tuple(TURNS[number] for number in (5, 6, 7, 8))
PLUGINS = {
    PNG: ("PIL.PngImagePlugin", "PngImageFile"),
    JPEG: ("PIL.JpegImagePlugin", "JpegImageFile"),
    GIF: ("PIL.GifImagePlugin", "GifImageFile"),
    BMP: ("PIL.BmpImagePlugin", "BmpImageFile"),
    TIFF: ("PIL.TiffImagePlugin", "TiffImageFile"),
    WEBP: ("PIL.WebPImagePlugin", "WebPImageFile"),
    HEIC: ("pillow_heif.as_plugin", "HeifImageFile"),
}
MOST = 16  # the largest factor by which a picture is reduced to save memory
DRAFTS = (2, 1, 0.5, 0.25)  # the size asked of a JPEG decoder, as a multiple of what fits in the box
MOST_SCANS = 50  # of a JPEG file; cameras and programs write at most 12 or so, and each takes time for all pixels
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
MARKER = re.compile(rb"\xff[\x02-\xcf\xd9-\xfe]")  # of JPEG; others have no length, and stand within a scan's data
BLOCK = 64 * 1024  # bytes in which markers are looked for
DEPTHS = (8, 10, 12, 14, 16)  # bits of gray that TIFF files hold in sixteen


def decode(content: bytes | BinaryIO, name: str, within: tuple[int, int] | None = None) -> Image.Image:
    """The picture that `decoded` gives."""
    with decoded(content, name, within) as picture:
        return picture


@contextmanager
def decoded(content: bytes | BinaryIO, name: str, within: tuple[int, int] | None = None) -> Iterator[Image.Image]:
    """The picture in a file, upright, in grays ("L") or colours ("RGB"); `UnreadableError` if it cannot be decoded.

    name     the file's, for messages
    within   width and height: a larger picture is scaled down in proportion until it fits; one that needs much memory
             may become still smaller

    The context reserves the memory for the picture, and for one copy or file made from it.
    """
    file = BytesIO(content) if isinstance(content, bytes) else content
    for larger in DRAFTS:
        image, kind = open_undecoded(file, name)
        full_size = image.size
        _require_few_pixels(full_size, name)
        with _broken(name):
            scans = 1 if kind is not JPEG else _require_few_scans(file, name)
            turn = _turn(image, kind)
            box = None if within is None else _turned(within, turn)
            if box is not None:
                image.draft(None, _decoded_size(full_size, box, larger))
            factor = 1 if box is None else _factor(image.size, box)
            decoding = decoding_bytes(image, kind, full_size, _length(file), scans)
            most = MOST if box is not None and (kind is not JPEG or larger == DRAFTS[-1]) else factor
            while decoding + _further_bytes(image, box, factor, turn) > BUDGET.total and factor < most:
                factor += 1
            needed = decoding + _further_bytes(image, box, factor, turn)
        if box is None or kind is not JPEG or needed <= BUDGET.total:
            break
        file.seek(0)
    with BUDGET.reserved(needed, name):
        with _broken(name):
            image = _loaded(image, kind)
            picture = _flattened(image, factor, _white(image, kind))
            image = None  # free it before the next copy
            if turn is not None:
                picture = picture.transpose(turn)
            if within is not None and (picture.width > within[0] or picture.height > within[1]):
                size = fitting_size(_turned(full_size, turn), within)
                picture = picture.resize(size, Image.Resampling.BILINEAR)
        yield picture
        del picture


def fitting_size(size: tuple[int, int], box: tuple[int, int]) -> tuple[int, int]:
    """The largest width and height within the box that keep the proportions of `size`; at least one pixel each."""
    (width, height), (most_width, most_height) = size, box
    if width * most_height >= height * most_width:  # the width decides; in whole numbers, the same on all machines
        return most_width, max(1, (2 * height * most_width + width) // (2 * width))
    return max(1, (2 * width * most_height + height) // (2 * height)), most_height


def open_undecoded(file: BinaryIO, name: str) -> tuple[Any, PictureFormat]:
    """The first picture in a file, with only its header read, and its format."""
    head = file.read(SIGNATURE_BYTES)
    file.seek(0)
    kind = picture_format(head)
    if kind is None:
        raise UnreadableError(no_picture(name))
    if kind is HEIC and not reads_heic():
        raise UnreadableError(needs_heif(name))
    with _broken(name):
        return _plugin(kind)(file), kind


def _plugin(kind: PictureFormat) -> Any:
    """Pillow's class for files of this format; imported when needed, so that a page starts sooner."""
    module, name = PLUGINS[kind]
    return getattr(import_module(module), name)


def _loaded(image: Any, kind: PictureFormat) -> Image.Image:
    """The picture with its pixels; for WebP without the decoder's own two frames, which Pillow would keep."""
    if kind is not WEBP:
        image.load()
        return image  # type: ignore[no-any-return]
    frame = image._decoder.get_next()
    image._decoder = None
    if frame is None:
        raise OSError("its data end too early")
    mode = "RGBA" if image.mode == "RGBA" else "RGBX"
    return Image.frombuffer(mode, image.size, frame[0], "raw", mode, 0, 1)


def _turn(image: Any, kind: PictureFormat) -> Image.Transpose | None:
    """How the EXIF tag turns the picture upright; Pillow turns TIFF and HEIC itself."""
    has_tag = kind in (JPEG, WEBP) or (kind is PNG and "exif" in image.info)
    return TURNS.get(image.getexif().get(ORIENTATION)) if has_tag else None


def _turned(box: tuple[int, int], turn: Image.Transpose | None) -> tuple[int, int]:
    """Width and height before this turn, from those after it, or the other way round."""
    return (box[1], box[0]) if turn in ON_ITS_SIDE else box


def _decoded_size(size: tuple[int, int], box: tuple[int, int], larger: float) -> tuple[int, int]:
    """The size to request from a JPEG decoder: larger than what fits in the box, so that the last step is smooth.

    If that needs too much memory, a smaller size is requested.
    """
    width, height = fitting_size(size, box)
    return max(1, min(int(larger * width), size[0])), max(1, min(int(larger * height), size[1]))


def _factor(size: tuple[int, int], box: tuple[int, int]) -> int:
    """The whole number by which a picture can be reduced without becoming smaller than what fits in the box."""
    return max(1, int(max(size[0] / box[0], size[1] / box[1])))


def _further_bytes(image: Any, box: tuple[int, int] | None, factor: int, turn: Image.Transpose | None) -> int:
    """Bytes needed in addition to decoding: for the picture's conversion, and for what is made from it."""
    width, height = map(int, image.size)
    flat = (width // factor + 1) * (height // factor + 1) * (1 if _is_gray(image.mode) else 4)
    if box is None or factor > 1 or turn is not None or not _is_flat(image):
        return flat + 8 * min(STRIP_PIXELS, width * height)
    made = width * height
    if width > box[0] or height > box[1]:
        smaller = fitting_size(image.size, box)
        made = smaller[0] * smaller[1] * 4
    return made


def _is_flat(image: Image.Image) -> bool:
    """Whether a picture is opaque and in grays or colours, so that it needs no conversion."""
    return image.mode in ("L", "RGB") and "transparency" not in image.info


def _is_gray(mode: str) -> bool:
    return mode in GRAY_MODES or mode.startswith("I;")


def _white(image: Image.Image, kind: PictureFormat) -> float:
    """The value of white in a picture with more than eight bits of gray.

    A TIFF file of ten or twelve bits often claims to have sixteen, so its depth is the smallest that holds its largest
    value. For values that are not whole numbers, white is 1 if none is larger.
    """
    if kind is not TIFF or not (image.mode.startswith("I") or image.mode == "F"):
        return 65536
    largest = float(image.getextrema()[1])  # type: ignore[arg-type]
    if image.mode == "F" and largest <= 1:
        return 1
    depth = next((depth for depth in DEPTHS if largest < 2**depth), 32 if image.mode == "I" else 16)
    return float(1 << depth)


def _flattened(image: Image.Image, factor: int, white: float) -> Image.Image:
    """The picture in grays or colours on white, reduced by a whole number and converted strip by strip."""
    width, height = image.size
    mode = "L" if _is_gray(image.mode) else "RGB"
    if factor == 1 and _is_flat(image):
        return image
    if factor == 1 and width * height <= STRIP_PIXELS:
        return _opaque(image, mode, white)
    target = Image.new(mode, (-(-width // factor), -(-height // factor)))
    rows = max(1, STRIP_PIXELS // width // factor) * factor
    for top in range(0, height, rows):
        strip = _opaque(image.crop((0, top, width, min(top + rows, height))), mode, white)
        target.paste(strip if factor == 1 else strip.reduce(factor), (0, top // factor))
    return target


def _opaque(image: Image.Image, mode: str, white: float) -> Image.Image:
    if image.mode.startswith("I"):  # sixteen bits of gray
        image = image.convert("I").point(lambda level: level * (256 / white))
    elif image.mode == "F" and white != 65536:
        image = image.point(lambda level: level * (255 if white == 1 else 256 / white))
    if image.mode in TRANSPARENT_MODES or "transparency" in image.info:
        whole = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole)
    return image.convert(mode)


def _require_few_pixels(size: tuple[int, int], name: str) -> None:
    width, height = size
    if width * height > MAX_PIXELS:
        words, most = "{name} is of {width:,}×{height:,} pixels; at most {most} million are decoded.", MAX_PIXELS / 1e6
        values = {"name": name, "width": width, "height": height, "most": decimal(most, 0)}
        raise UnreadableError(coded("unreadable.pixels", words, **values))


def _require_few_scans(file: BinaryIO, name: str) -> int:
    """The number of scans of a JPEG file; `UnreadableError` if decoding them would take minutes.

    A scan of a few bytes goes through all pixels, so a small file could keep a computer busy for hours.
    """
    start, place, scans = file.tell(), 2, 0
    while (found := _next_marker(file, place)) is not None:
        place, marker = found
        if marker == END_OF_IMAGE:
            break
        scans += marker == START_OF_SCAN
        if scans > MOST_SCANS:
            words = "{name} has more than {most} scans, each of which takes time for all pixels; save it again as JPEG."
            raise UnreadableError(coded("unreadable.scans", words, name=name, most=MOST_SCANS))
        file.seek(place + 2)
        place += 2 + max(2, int.from_bytes(file.read(2), "big"))
    file.seek(start)
    return scans


def _next_marker(file: BinaryIO, place: int) -> tuple[int, int] | None:
    """Position and number of a JPEG file's next marker from a position on; None if there is none."""
    while True:
        file.seek(place)
        block = file.read(BLOCK)
        found = MARKER.search(block)
        if found is not None:
            return place + found.start(), block[found.start() + 1]
        if len(block) < BLOCK:
            return None
        place += len(block) - 1  # a marker may lie across two blocks


def _length(file: BinaryIO) -> int:
    """Read bytes of a file without moving its position."""
    place = file.tell()
    length = file.seek(0, 2)
    file.seek(place)
    return length


@contextmanager
def _broken(name: str) -> Iterator[None]:
    """Turn Pillow's errors for broken files, which have many classes, into a sentence."""
    try:
        yield
    except UnreadableError:
        raise
    except MemoryError:
        raise UnreadableError(
            coded("unreadable.memory", "{name} takes more memory to decode than there is.", name=name)
        ) from None
    except Exception as error:
        text = str(error).strip().splitlines()
        first = text[0].rstrip(".") if text and text[0] else type(error).__name__
        raise UnreadableError(
            coded("unreadable.broken", "{name} is broken: {error}.", name=name, error=untranslated(first))
        ) from None
