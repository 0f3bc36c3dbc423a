"""Samples to label, the sources they come from, and picture formats, which are recognized by their first bytes.

A sample's id is a hash of its content, so labels stay with their pictures when files are added, renamed or moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, BinaryIO, Literal, NamedTuple, Protocol, TypeAlias

from truthfl.coded_text import CodedText, coded
from truthfl.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


ID_LENGTH = 32

Kind = Literal["picture", "text", "row"]  # "row": a row of a table, or another sample that is shown in words
Pixels: TypeAlias = "NDArray[np.uint8]"
Shape: TypeAlias = tuple[int, ...]  # height, width, channels


class UnreadableError(InputError):
    """A sample cannot be read; it is reported and left out."""


class Sample(NamedTuple):
    """One sample of a source.

    id    hash of its content
    name  the name shown to people: a path, row or line
    row   its index in the source's reader
    """

    id: str
    name: str
    row: int


class Problem(NamedTuple):
    """Name of a sample that was left out, and the reason as a sentence."""

    name: str
    reason: str


class Media(NamedTuple):
    """A sample, or its shown form, as a file's content."""

    content: bytes
    media_type: str


class Reader(Protocol):
    """Reads the samples of one source, one at a time. All methods may raise `UnreadableError`."""

    def file(self, row: int) -> BinaryIO:
        """The sample as a file open for reading, not checked; the caller closes it."""

    def media(self, row: int) -> Media:
        """The unchanged sample, complete and checked to be readable."""

    def pixels(self, row: int, shape: Shape | None = None) -> Pixels:
        """The sample for training: (height, width, channels), with 1 or 3 channels; fitted to `shape`, if given."""


@dataclass(frozen=True, eq=False)
class Source:
    """The samples of one folder or file, in an order that depends only on its content.

    place     its path, for messages
    problems  samples that were left out
    """

    place: str
    kind: Kind
    samples: tuple[Sample, ...]
    problems: tuple[Problem, ...]
    reader: Reader

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(sample.id for sample in self.samples)

    def file(self, position: int) -> BinaryIO:
        return self.reader.file(self.samples[position].row)

    def media(self, position: int) -> Media:
        return self.reader.media(self.samples[position].row)

    def pixels(self, position: int, shape: Shape | None = None) -> Pixels:
        return self.reader.pixels(self.samples[position].row, shape)

    def subset(self, positions: Iterable[int], problems: Iterable[Problem]) -> Source:
        """The source with only the samples at these positions, in this order, and with these problems added."""
        samples = tuple(self.samples[position] for position in positions)
        return replace(self, samples=samples, problems=(*self.problems, *problems))


def content_id(*parts: bytes | memoryview) -> str:
    """The id of a sample whose content is these bytes."""
    return sha256(b"".join(parts)).hexdigest()[:ID_LENGTH]


def samples_with_unique_ids(contents: Sequence[str], names: Sequence[str], rows: Sequence[int]) -> tuple[Sample, ...]:
    """Samples with these content ids; the second of two equal ones gets the suffix "-2", and so on."""
    seen: Counter[str] = Counter()
    samples = []
    for content, name, row in zip(contents, names, rows, strict=True):
        seen[content] += 1
        samples.append(Sample(content if seen[content] == 1 else f"{content}-{seen[content]}", name, row))
    return tuple(samples)


def require_samples(source: Source, wanted: str) -> Source:
    """The source itself; an error if it is empty. `wanted` says in the message what it should hold."""
    if not source.samples:
        first = f" ({source.problems[0].reason})" if source.problems else ""
        raise InputError(f"{source.place} has nothing to label{first}; it must hold {wanted}.")
    return source


MAX_BYTES = 64_000_000
MAX_PIXELS = 50_000_000
SIGNATURE_BYTES = 32  # at most this many bytes at a file's beginning show its format


class PictureFormat(NamedTuple):
    """One format.

    suffixes      how names of such files end
    media_type    for browsers; "" for a format that they do not show
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
_SHORTEST = 13  # bytes of the shortest header, in any format, that has a picture's size


def picture_format(head: bytes) -> PictureFormat | None:
    """The format of a file that starts with these bytes; None if it is unknown."""
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
    """Why a picture file with this name is not read; None if it may be read, or is no picture."""
    lower = name.lower()
    if lower.endswith(HEIC.suffixes) and not reads_heic():
        return needs_heif(name)
    if lower.endswith(NOT_READ):
        words = "{name} is of a format that is not read; save it as {formats}."
        return coded("unreadable.format", words, name=name, formats=FORMATS)
    return None


def needs_heif(name: str) -> CodedText:
    """The reason that a HEIC picture cannot be read here."""
    words = "{name} is HEIC, which needs one more package: {command}, or save it as JPEG."
    return coded("unreadable.heic", words, name=name, command="pip install 'truthfl[heif]'")


def no_picture(name: str) -> CodedText:
    """The reason that a file of no known format is not read."""
    return coded(
        "unreadable.no_picture", "{name} is no {formats} picture, whatever its name says.", name=name, formats=FORMATS
    )


def is_picture_name(name: str) -> bool:
    """Whether the name's ending is one of pictures that are read or that are listed as not read."""
    return name.lower().endswith((*SUFFIXES, *HEIC.suffixes, *NOT_READ))
