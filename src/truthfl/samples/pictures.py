"""Pictures, decoded within limits: for the browser and for thumbnails. Looks at `formats`, `sample`.

A picture's size is read from its first bytes and held against the limit before anything of it is decoded. Only PNG and
JPEG are.
"""

from __future__ import annotations

from io import BytesIO

from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from truthfl.samples.formats import MOST_PIXELS, PNG, is_picture
from truthfl.samples.sample import Shown, UnreadableError

THUMBNAIL = 160
SMALL_ENOUGH = 20_000  # bytes up to which a picture is its own thumbnail
GRAY = ("1", "L", "LA", "La", "I", "F")
SEE_THROUGH = ("LA", "La", "RGBA", "RGBa", "PA")


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


def as_shown(image: Image.Image, name: str) -> Image.Image:
    """Upright and opaque, as a browser shows it on white: in grays ("L") or colours ("RGB")."""
    try:
        return _as_shown(image)
    except Exception as error:  # whatever a stranger's bytes make Pillow raise
        raise UnreadableError(f"{name} is broken: {_short(error)}.") from None


def redrawn(shown: Shown, name: str) -> Shown:
    """The same picture as a plain PNG file, for a browser that cannot show it as it is."""
    target = BytesIO()
    as_shown(decoded(shown.content, name), name).save(target, "PNG", compress_level=1)
    return Shown(target.getvalue(), "image/png")


def _as_shown(image: Image.Image) -> Image.Image:
    upright = ImageOps.exif_transpose(image)
    gray = upright.mode in GRAY or upright.mode.startswith("I;")
    if upright.mode.startswith("I"):  # sixteen bits of gray
        upright = upright.convert("I").point(lambda level: level * (1 / 256))
    if upright.mode in SEE_THROUGH or "transparency" in upright.info:
        whole = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", whole.size, "white"), whole)
    return upright.convert("L" if gray else "RGB")


def thumbnail(shown: Shown, name: str) -> Shown:
    """Small enough to show a hundred of them."""
    if len(shown.content) <= SMALL_ENOUGH:
        return shown
    image = _announced(shown.content, name)
    image.draft("RGB", (2 * THUMBNAIL, 2 * THUMBNAIL))
    small = as_shown(image, name)
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    target = BytesIO()
    small.save(target, "JPEG", quality=80)
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


def _short(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0].rstrip(".") if text and text[0] else type(error).__name__
