"""Picture formats that can be read, PNG and JPEG, and the size limits. Imports no other module of truthfl."""

from __future__ import annotations

MAX_BYTES = 64_000_000
MAX_PIXELS = 50_000_000

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"


def is_picture(head: bytes) -> bool:
    """Whether a file that starts with these bytes is PNG or JPEG."""
    return head.startswith((PNG, JPEG))


def media_type(raw: bytes) -> str:
    """The media type of a PNG or JPEG file."""
    return "image/png" if raw.startswith(PNG) else "image/jpeg"
