"""Decoding of PNG and JPEG pictures within size limits, and thumbnails. Imports `formats`, `sample`.

The size is read from the header and compared with the limit before any pixel is decoded.
"""

from __future__ import annotations

from io import BytesIO

from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from truthfl.samples.formats import MAX_PIXELS, PNG, is_picture
from truthfl.samples.sample import Media, UnreadableError

THUMBNAIL_PIXELS = 160  # width and height at most
UNCHANGED_BYTES = 20_000  # smaller files are sent as their own thumbnail
GRAY_MODES = ("1", "L", "LA", "La", "I", "F")
TRANSPARENT_MODES = ("LA", "La", "RGBA", "RGBa", "PA")


def decode(raw: bytes, name: str) -> Image.Image:
    """The fully decoded picture in these bytes; raises `UnreadableError` if it is too large, broken or no picture.

    `name` is the file's name for messages.
    """
    image = _open_undecoded(raw, name)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise UnreadableError(
            f"{name} is of {width:,}×{height:,} pixels; at most {MAX_PIXELS / 1e6:,.0f} million are decoded."
        )
    try:
        image.load()
    except Exception as error:  # Pillow raises errors of many classes for broken files
        raise UnreadableError(f"{name} is broken: {_first_line(error)}.") from None
    return image


def upright_and_opaque(image: Image.Image, name: str) -> Image.Image:
    """The picture as a browser shows it on white: rotated by its EXIF tag, in grays ("L") or colours ("RGB")."""
    try:
        return _upright_and_opaque(image)
    except Exception as error:  # Pillow raises errors of many classes for broken files
        raise UnreadableError(f"{name} is broken: {_first_line(error)}.") from None


def reencoded(media: Media, name: str) -> Media:
    """The same picture as a plain PNG file, for a browser that cannot show the original."""
    target = BytesIO()
    upright_and_opaque(decode(media.content, name), name).save(target, "PNG", compress_level=1)
    return Media(target.getvalue(), "image/png")


def _upright_and_opaque(image: Image.Image) -> Image.Image:
    upright = ImageOps.exif_transpose(image)
    gray = upright.mode in GRAY_MODES or upright.mode.startswith("I;")
    if upright.mode.startswith("I"):  # sixteen bits of gray
        upright = upright.convert("I").point(lambda level: level * (1 / 256))
    if upright.mode in TRANSPARENT_MODES or "transparency" in upright.info:
        whole = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole)
    return upright.convert("L" if gray else "RGB")


def thumbnail(media: Media, name: str) -> Media:
    """A small JPEG of a picture; small files are returned unchanged."""
    if len(media.content) <= UNCHANGED_BYTES:
        return media
    image = _open_undecoded(media.content, name)
    image.draft("RGB", (2 * THUMBNAIL_PIXELS, 2 * THUMBNAIL_PIXELS))
    small = upright_and_opaque(image, name)
    small.thumbnail((THUMBNAIL_PIXELS, THUMBNAIL_PIXELS))
    target = BytesIO()
    small.save(target, "JPEG", quality=80)
    return Media(target.getvalue(), "image/jpeg")


def _open_undecoded(raw: bytes, name: str) -> Image.Image:
    """The picture with only its header read."""
    if not is_picture(raw):
        raise UnreadableError(f"{name} is no PNG or JPEG picture, whatever its name says.")
    kind = PngImageFile if raw.startswith(PNG) else JpegImageFile
    try:
        return kind(BytesIO(raw))
    except Exception as error:  # Pillow raises errors of many classes for broken files
        raise UnreadableError(f"{name} is broken: {_first_line(error)}.") from None


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0].rstrip(".") if text and text[0] else type(error).__name__
