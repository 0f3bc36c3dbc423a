"""What is taken for a picture: PNG and JPEG, up to a size. Looks nowhere."""

from __future__ import annotations

MOST_BYTES = 64_000_000
MOST_PIXELS = 50_000_000

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"


def is_picture(head: bytes) -> bool:
    return head.startswith((PNG, JPEG))


def media_type(raw: bytes) -> str:
    return "image/png" if raw.startswith(PNG) else "image/jpeg"
