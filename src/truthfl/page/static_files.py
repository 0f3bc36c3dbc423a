"""The page's own files, read once from the package. Looks nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from importlib import resources

PAGES = ("offer", "label", "review", "receipt")
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True)
class StaticFile:
    """What is sent, and the mark by which a browser knows that it has it already."""

    content: bytes
    media_type: str
    etag: str


def static_files() -> dict[str, StaticFile]:
    """By name; there are no others, so no name leads anywhere else."""
    found = {}
    for file in resources.files("truthfl.page").joinpath("static").iterdir():
        ending = file.name.rsplit(".", 1)[-1]
        if file.is_file() and ending in MEDIA_TYPES:
            content = file.read_bytes()
            found[file.name] = StaticFile(content, MEDIA_TYPES[ending], f'"{sha256(content).hexdigest()[:16]}"')
    return found
