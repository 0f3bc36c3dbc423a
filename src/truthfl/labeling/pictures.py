"""Pictures, decoded within limits: for the browser, for thumbnails, for training. Looks at `sample` and `learning`.

A picture's size is read from its first bytes and held against the limit before anything of it is decoded. Only PNG and
JPEG are.
"""

from __future__ import annotations

from io import BytesIO

import numpy as np
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from truthfl.errors import InputError
from truthfl.labeling.sample import Pixels, Problem, Shown, Source, UnreadableError
from truthfl.learning.model import Images

MOST_BYTES = 64_000_000
MOST_PIXELS = 50_000_000
THUMBNAIL = 160
SMALL_ENOUGH = 20_000  # bytes up to which a picture is its own thumbnail

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
GRAY = ("1", "L", "LA", "La", "I", "F")
SEE_THROUGH = ("LA", "La", "RGBA", "RGBa", "PA")


def load_images(source: Source) -> Images:
    """All pictures that can be read, (n, height, width, channels), in the source's order."""
    return load(source)[1]


def load(source: Source) -> tuple[Source, Images]:
    """The source without what cannot be read, and the pictures of what is left, in the same order.

    They must be of one size. Where one has colours, all get three channels.
    """
    if source.kind != "picture":
        raise InputError(f"{source.place} holds texts; a model is trained on pictures.")
    kept: list[int] = []
    arrays: list[Pixels] = []
    problems: list[Problem] = []
    for position, sample in enumerate(source.samples):
        try:
            array = source.pixels(position)
        except UnreadableError as error:
            problems.append(Problem(sample.name, str(error)))
            continue
        if arrays and array.shape[:2] != arrays[0].shape[:2]:
            first = source.samples[kept[0]].name
            raise InputError(
                f"{sample.name} has {_size(array)} pixels and {first} {_size(arrays[0])}; in one job, all pictures "
                f"must be of one size ({source.place})."
            )
        kept.append(position)
        arrays.append(array)
    if not arrays:
        raise InputError(f"{source.place} has no picture that can be read; the first says: {problems[0].why}")
    channels = max(array.shape[2] for array in arrays)
    images = np.empty((len(arrays), *arrays[0].shape[:2], channels), dtype=np.uint8)
    for row, array in enumerate(arrays):
        images[row] = array
    return source.keeping(kept, problems), images


def is_picture(head: bytes) -> bool:
    return head.startswith((PNG, JPEG))


def media_type(raw: bytes) -> str:
    return "image/png" if raw.startswith(PNG) else "image/jpeg"


def decoded(raw: bytes, name: str) -> Image.Image:
    """The picture in these bytes, wholly decoded; a sentence if it is too large, broken or none."""
    image = _announced(raw, name)
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise UnreadableError(
            f"{name} is of {width:,}×{height:,} pixels; at most {MOST_PIXELS / 1e6:,.0f} million are decoded."
        )
    try:
        image.load()
    except Exception as error:  # whatever a stranger's bytes make Pillow raise
        raise UnreadableError(f"{name} is broken: {_short(error)}.") from None
    return image


def pixels_of(image: Image.Image) -> Pixels:
    """Upright and opaque, as the page shows it: (height, width, 1) of grays or (height, width, 3) of colours."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode in SEE_THROUGH or "transparency" in upright.info:
        whole = upright.convert("RGBA")
        gray = upright.mode in GRAY
        paper = Image.new("RGBA", whole.size, "white")
        upright = Image.alpha_composite(paper, whole).convert("L" if gray else "RGB")
    if upright.mode.startswith("I"):  # sixteen bits of gray
        deep: Pixels = np.clip(np.asarray(upright).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
        return deep[..., None]
    flat = np.asarray(upright.convert("L" if upright.mode in GRAY else "RGB"), dtype=np.uint8)
    return flat[..., None] if flat.ndim == 2 else flat


def as_png(pixels: Pixels) -> bytes:
    """An array of grays or colours as a PNG file."""
    target = BytesIO()
    flat = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    Image.fromarray(np.ascontiguousarray(flat)).save(target, "PNG", compress_level=1)
    return target.getvalue()


def thumbnail(shown: Shown, name: str) -> Shown:
    """Small enough to show a hundred of them."""
    if len(shown.content) <= SMALL_ENOUGH:
        return shown
    image = _announced(shown.content, name)
    image.draft("RGB", (2 * THUMBNAIL, 2 * THUMBNAIL))
    try:
        small = ImageOps.exif_transpose(image)
        small.thumbnail((THUMBNAIL, THUMBNAIL))
        target = BytesIO()
        small.convert("RGB").save(target, "JPEG", quality=80)
    except Exception as error:  # as in `decoded`
        raise UnreadableError(f"{name} is broken: {_short(error)}.") from None
    return Shown(target.getvalue(), "image/jpeg")


def _announced(raw: bytes, name: str) -> Image.Image:
    """What the first bytes say; nothing is decoded yet."""
    if not is_picture(raw):
        raise UnreadableError(f"{name} is no PNG or JPEG picture, whatever its name says.")
    kind = PngImageFile if raw.startswith(PNG) else JpegImageFile
    try:
        return kind(BytesIO(raw))
    except Exception as error:  # as in `decoded`
        raise UnreadableError(f"{name} is broken: {_short(error)}.") from None


def _size(array: Pixels) -> str:
    return f"{array.shape[1]}×{array.shape[0]}"


def _short(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0].rstrip(".") if text and text[0] else type(error).__name__
