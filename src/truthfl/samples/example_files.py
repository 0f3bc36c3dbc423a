"""Example files of the classes: the operator's side makes them small, the participant's side checks them.

Examples from a server are untrusted: each must have the digest, type and size in the signed offer. It must be plain
text, or a picture that can be decoded and is no larger than the operator's side makes them.
"""

from __future__ import annotations

from hashlib import sha256
from io import BytesIO
from pathlib import Path

from PIL import Image

from truthfl.errors import InputError, ServiceError
from truthfl.files import write_file
from truthfl.instructions import LARGEST, PICTURE_SIDE, TEXT_TYPE, Example
from truthfl.samples.pictures import decode, open_undecoded
from truthfl.samples.sample import JPEG, PNG, UnreadableError, picture_format
from truthfl.texts import is_plain

FOLDER = "examples"  # in a participant's or operator's folder
LARGEST_PNG = 20_000  # bytes; a larger picture becomes a JPEG
QUALITIES = (85, 70, 50)  # of a JPEG, until it is small enough


def small_example(raw: bytes, name: str) -> tuple[Example, bytes]:
    """An operator's file as an example, within the limits of pixels and bytes; `name`: its path, for messages."""
    content, media_type = _small_text(raw, name) if name.lower().endswith(".txt") else _small_picture(raw, name)
    if not content:
        raise InputError(f"{name} is empty; an example must show something.")
    if len(content) > LARGEST[media_type]:
        raise InputError(f"{name} has {len(content):,} bytes; an example must have at most {LARGEST[media_type]:,}.")
    return Example(sha256(content).hexdigest(), media_type, len(content)), content


def require_sound_example(content: bytes, example: Example) -> None:
    """Raise `InputError` unless this is the example that an offer names, and is safe to show."""
    name = f"the example {example.sha256[:8]}…"
    if len(content) != example.size or sha256(content).hexdigest() != example.sha256:
        raise InputError(f"{name} is another file than the one in the signed offer.")
    if example.media_type == TEXT_TYPE:
        _require_plain_text(content, name)
        return
    kind = picture_format(content)
    if kind not in (PNG, JPEG) or kind.media_type != example.media_type:
        raise InputError(f"{name} is no {example.media_type}, as the offer says.")
    try:
        width, height = open_undecoded(BytesIO(content), name)[0].size
    except UnreadableError:
        raise InputError(f"{name} is a broken picture.") from None
    if max(width, height) > PICTURE_SIDE:
        raise InputError(f"{name} has {width:,}×{height:,} pixels; at most {PICTURE_SIDE}×{PICTURE_SIDE} are taken.")
    decode(content, name)


def keep_example(home: Path, example: Example, content: bytes) -> None:
    """Write an example to a participant's or operator's folder."""
    write_file(_file(home, example), content)


def kept_example(home: Path, example: Example) -> bytes | None:
    """The example in the folder; None if it is not there, or is damaged."""
    try:
        content = _file(home, example).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ServiceError(f"{_file(home, example)} cannot be read: {error.strerror}.") from None
    return content if sha256(content).hexdigest() == example.sha256 else None


def _file(home: Path, example: Example) -> Path:
    return home / FOLDER / example.sha256


def _small_text(raw: bytes, name: str) -> tuple[bytes, str]:
    """A text in UTF-8 with plain line ends and without tabs."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{name} is not UTF-8 text.") from None
    content = "\n".join(text.expandtabs(4).splitlines()).strip().encode()
    if len(content) <= LARGEST[TEXT_TYPE]:
        _require_plain_text(content, name)
    return content, TEXT_TYPE


def _require_plain_text(content: bytes, name: str) -> None:
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        raise InputError(f"{name} is not UTF-8 text.") from None
    if not all(is_plain(line, len(line)) for line in lines):
        raise InputError(f"{name} has control characters; an example must be plain text.")


def _small_picture(raw: bytes, name: str) -> tuple[bytes, str]:
    """The picture upright, within the largest size, without any metadata from its file."""
    small = decode(raw, name, (PICTURE_SIDE, PICTURE_SIDE))
    small.info.clear()  # comments, colour profiles
    content = _encoded(small, "PNG", optimize=True)
    if len(content) <= LARGEST_PNG:
        return content, "image/png"
    for quality in QUALITIES:
        content = _encoded(small, "JPEG", quality=quality)
        if len(content) <= LARGEST["image/jpeg"]:
            break
    return content, "image/jpeg"


def _encoded(image: Image.Image, kind: str, **options: int) -> bytes:
    target = BytesIO()
    image.save(target, kind, icc_profile=None, **options)
    return target.getvalue()
