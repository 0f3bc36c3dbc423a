"""A page's static files, read once from its package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

PARTICIPANTS_PAGE = Path(__file__).parent
PAGES = ("offer", "label", "review", "receipt")
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class StaticFile(NamedTuple):
    """Content of a file, with its ETag for the browser's cache."""

    content: bytes
    media_type: str
    etag: str


@cache
def static_files(package: Path = PARTICIPANTS_PAGE) -> Mapping[str, StaticFile]:
    """All files in the folder `static` of a package's folder, by name.

    Only these are served, so a request cannot name a path.
    """
    files = (file for file in (package / "static").iterdir() if file.is_file())
    return {file.name: static_file(file.name, file.read_bytes()) for file in files if _suffix(file.name) in MEDIA_TYPES}


def static_file(name: str, content: bytes | str) -> StaticFile:
    """A file with this name and content."""
    raw = content.encode() if isinstance(content, str) else content
    return StaticFile(raw, MEDIA_TYPES[_suffix(name)], f'"{sha256(raw).hexdigest()[:16]}"')


def _suffix(name: str) -> str:
    return name.rsplit(".", 1)[-1]
