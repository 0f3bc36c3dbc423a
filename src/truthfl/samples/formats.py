"""Picture formats that can be read, known by the first bytes of a file, and the size limits."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from truthfl.coded_text import CodedText, coded

MAX_BYTES = 64_000_000
MAX_PIXELS = 50_000_000
SIGNATURE_BYTES = 32  # of a file's beginning, at most, by which its format is known


class PictureFormat(NamedTuple):
    """One format.

    suffixes      how names of such files end
    media_type    that browsers show; "" for a format that they do not show
    """

    name: str
    suffixes: tuple[str, ...]
    media_type: str = ""


PNG = PictureFormat("PNG", (".png",), "image/png")
JPEG = PictureFormat("JPEG", (".jpg", ".jpeg"), "image/jpeg")
WEBP = PictureFormat("WebP", (".webp",), "image/webp")
GIF = PictureFormat("GIF", (".gif",), "image/gif")
BMP = PictureFormat("BMP", (".bmp",), "image/bmp")
TIFF = PictureFormat("TIFF", (".tif", ".tiff"))
HEIC = PictureFormat("HEIC", (".heic", ".heif"))

ALWAYS_READ = (PNG, JPEG, WEBP, GIF, BMP, TIFF)
SUFFIXES = tuple(suffix for kind in ALWAYS_READ for suffix in kind.suffixes)
NAMES = "PNG, JPEG, WebP, GIF, BMP, TIFF or HEIC"
FORMATS = coded("unreadable.formats", "PNG, JPEG, WebP, GIF, BMP, TIFF or HEIC")
DRAWN = (".svg", ".svgz", ".psd", ".psb", ".ai", ".eps", ".xcf", ".tga", ".ico", ".exr")
PHOTOS = (".avif", ".jxl", ".jp2", ".j2k", ".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf")
NOT_READ = DRAWN + PHOTOS  # endings of pictures that are listed as not read

_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1")
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)  # sizes of the second header
_SHORTEST = 13  # bytes of the header that tells a picture's size, in the format that needs fewest


def picture_format(head: bytes) -> PictureFormat | None:
    """The format of a file that starts with these bytes; None if it is none that is known here."""
    if len(head) < _SHORTEST:
        return None
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if head.startswith(b"\xff\xd8\xff"):
        return JPEG
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return WEBP
    if head.startswith((b"GIF87a", b"GIF89a")):
        return GIF
    if head.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return TIFF
    if head.startswith(b"BM") and int.from_bytes(head[14:18], "little") in _BMP_HEADERS:
        return BMP
    return HEIC if head[4:8] == b"ftyp" and head[8:12] in _HEIC_BRANDS else None


def reads_heic() -> bool:
    """Whether the package that reads HEIC is installed."""
    return find_spec("pillow_heif") is not None


def unread_reason(name: str) -> str | None:
    """Why a file with this name is not read though it is a picture; None if it may be read, or is no picture."""
    lower = name.lower()
    if lower.endswith(HEIC.suffixes) and not reads_heic():
        return needs_heif(name)
    if lower.endswith(NOT_READ):
        words = "{name} is of a format that is not read; save it as {formats}."
        return coded("unreadable.format", words, name=name, formats=FORMATS)
    return None


def needs_heif(name: str) -> CodedText:
    """That a picture is HEIC, which cannot be read here."""
    words = "{name} is HEIC, which needs one more package: {command}, or save it as JPEG."
    return coded("unreadable.heic", words, name=name, command="pip install 'truthfl[heif]'")


def no_picture(name: str) -> CodedText:
    """That a file is none of the formats."""
    return coded(
        "unreadable.no_picture", "{name} is no {formats} picture, whatever its name says.", name=name, formats=FORMATS
    )


def is_picture_name(name: str) -> bool:
    """Whether the name ends as those of pictures that are read, or of pictures that are listed as not read."""
    return name.lower().endswith((*SUFFIXES, *HEIC.suffixes, *NOT_READ))
