"""Pictures for the browser, each made once: thumbnails, pictures that fit the screen, whole pictures for zooming.

A small file that browsers can show is sent unchanged. All other pictures are decoded, scaled down and kept as private
files in a cache of limited size, by the picture's content id.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

from PIL import Image

from truthfl.errors import ServiceError
from truthfl.files import write_file
from truthfl.samples.pictures import decode, decoded, open_undecoded
from truthfl.samples.sample import GIF, JPEG, PNG, WEBP, Media, Source

CACHE = "cache/shown"
MAX_CACHE_BYTES = 500_000_000
KEPT_AFTER_CLEANING = 0.8  # share of that
LARGE_PIXELS = 2_000_000  # one thread alone decodes larger pictures: each thread that did would keep some memory
AS_PNG_PIXELS = 512 * 512  # smaller pictures are sent without loss
MEDIA_TYPES = {".png": "image/png", ".jpg": "image/jpeg"}


class Form(NamedTuple):
    """A way to show a picture.

    side        width and height at most, in pixels
    unchanged   largest size in bytes of a file that is sent unchanged
    lossless    whether pictures of few pixels are sent as PNG
    """

    name: str
    side: int
    unchanged: int
    quality: int
    lossless: bool = True


THUMB = Form("thumb", 160, 20_000, 80, lossless=False)
SCREEN = Form("screen", 2400, 1_500_000, 88)
REENCODED = Form("reencoded", 2400, 0, 88)  # for a browser that cannot show the original
WHOLE = Form("whole", 8192, 4_000_000, 85)  # for zooming
FORMS = {form.name: form for form in (THUMB, SCREEN, REENCODED, WHOLE)}


class ShownPictures:
    """The pictures of one source in the forms that the browser gets; threads may share this."""

    def __init__(self, source: Source, home: Path) -> None:
        self.source, self.folder = source, home / CACHE
        self._checked: set[int] = set()  # positions of pictures that were decoded once
        self._lock = threading.Lock()
        self._bytes: int | None = None  # in the cache

    def get(self, position: int, form: Form) -> Media:
        """The picture in this form; `UnreadableError` if it cannot be read."""
        name = self.source.samples[position].name
        with self.source.file(position) as file:
            media = self._cached(position, form)
            if media is not None:
                return media
            if _is_large(file, name, form):
                return _large.submit(self._make, position, file, name, form).result()
            return self._make(position, file, name, form)

    def _make(self, position: int, file: BinaryIO, name: str, form: Form) -> Media:
        return self._unchanged(position, file, name, form) or self._made(position, file, name, form)

    def _unchanged(self, position: int, file: BinaryIO, name: str, form: Form) -> Media | None:
        """The file itself if it is small and browsers show it as training sees it; None otherwise."""
        length = file.seek(0, os.SEEK_END)
        file.seek(0)
        if length > form.unchanged:
            return None
        image, kind = open_undecoded(file, name)
        moves = kind in (GIF, WEBP) and getattr(image, "is_animated", False)
        if not kind.media_type or moves or max(image.size) > max(form.side, SCREEN.side):
            return None
        file.seek(0)
        if position not in self._checked:
            decode(file, name, (THUMB.side, THUMB.side))
            self._checked.add(position)
            file.seek(0)
        return Media(file.read(), kind.media_type)

    def _made(self, position: int, file: BinaryIO, name: str, form: Form) -> Media:
        file.seek(0)
        with decoded(file, name, (form.side, form.side)) as picture:
            lossless = form.lossless and picture.width * picture.height <= AS_PNG_PIXELS
            media = _encoded(picture, form.quality, lossless)
            del picture  # free it before another thread may have its memory
        self._keep(position, form, media)
        return media

    def _path(self, position: int, form: Form, suffix: str) -> Path:
        content, _, _ = self.source.samples[position].id.partition("-")  # equal pictures have one file
        return self.folder / f"{content}.{form.name}{suffix}"

    def _cached(self, position: int, form: Form) -> Media | None:
        for suffix, media_type in MEDIA_TYPES.items():
            path = self._path(position, form, suffix)
            with suppress(OSError):
                content = path.read_bytes()
                os.utime(path)  # the longest unused are removed first
                if content:
                    return Media(content, media_type)
        return None

    def _keep(self, position: int, form: Form, media: Media) -> None:
        """Write to the cache and remove old files if there are too many; a disk that cannot be written is no error."""
        suffix = ".png" if media.media_type == PNG.media_type else ".jpg"
        with self._lock, suppress(ServiceError, OSError):
            write_file(self._path(position, form, suffix), media.content, private=True, sync=False)
            self._bytes = sum(self._sizes().values()) if self._bytes is None else self._bytes + len(media.content)
            if self._bytes > MAX_CACHE_BYTES:
                self._clean()

    def _sizes(self) -> dict[Path, int]:
        """Bytes of each file in the cache, the longest unused first."""
        found = [(entry.stat(), Path(entry.path)) for entry in os.scandir(self.folder)]
        return {path: status.st_size for status, path in sorted(found, key=lambda one: one[0].st_mtime_ns)}

    def _clean(self) -> None:
        sizes = self._sizes()
        total = sum(sizes.values())
        for path, size in sizes.items():
            if total <= MAX_CACHE_BYTES * KEPT_AFTER_CLEANING:
                break
            path.unlink(missing_ok=True)
            total -= size
        self._bytes = total


_large = ThreadPoolExecutor(1, "large pictures")


def _is_large(file: BinaryIO, name: str, form: Form) -> bool:
    """Whether decoding needs much memory; a thumbnail of a JPEG file is decoded at a small size."""
    image, kind = open_undecoded(file, name)
    file.seek(0)
    drafted = kind is JPEG and form is THUMB and "progressive" not in image.info
    return not drafted and image.width * image.height > LARGE_PIXELS


def _encoded(picture: Image.Image, quality: int, lossless: bool) -> Media:
    target = BytesIO()
    if lossless:
        picture.save(target, "PNG", compress_level=1)
        return Media(target.getvalue(), "image/png")
    picture.save(target, "JPEG", quality=quality)
    return Media(target.getvalue(), "image/jpeg")
