"""A page's static files, read once from its package. Imports nothing."""

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
    """Content of a file, with its ETag for the browser's cache."""

    content: bytes
    media_type: str
    etag: str


def static_files(package: str = "truthfl.page") -> dict[str, StaticFile]:
    """All files in this package's folder `static`, by name. Only these are served, so a request cannot name a path."""
    files = {}
    for file in resources.files(package).joinpath("static").iterdir():
        suffix = file.name.rsplit(".", 1)[-1]
        if file.is_file() and suffix in MEDIA_TYPES:
            content = file.read_bytes()
            files[file.name] = StaticFile(content, MEDIA_TYPES[suffix], f'"{sha256(content).hexdigest()[:16]}"')
    return files
