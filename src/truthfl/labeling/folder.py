"""A folder of PNG and JPEG files, and of folders of them. Looks at `sample` and `pictures`.

Nothing is decoded when it is opened: a file is known by its size, its first and its last bytes. Nothing outside the
folder is read, wherever links lead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from truthfl.errors import InputError
from truthfl.labeling.pictures import MOST_BYTES, decoded, is_picture, media_type
from truthfl.labeling.sample import (
    Pixels,
    Problem,
    Shown,
    Source,
    UnreadableError,
    content_id,
    numbered,
    require_some,
)

ENDINGS = (".png", ".jpg", ".jpeg")
LOOKED_AT = 16 * 1024  # bytes at each end of a file
READ_BYTES = os.O_RDONLY | getattr(os, "O_BINARY", 0)


def open_folder(folder: Path) -> Source:
    """Sorted by path."""
    root = folder.resolve()
    paths, names, contents, problems = [], [], [], []
    for path in sorted(_files(root, str(root), "")):
        name = _for_people(path)
        try:
            contents.append(_fingerprint(f"{root}/{path}", name))
        except UnreadableError as error:
            problems.append(Problem(name, str(error)))
            continue
        paths.append(path)
        names.append(name)
    samples = numbered(contents, names, range(len(paths)))
    found = Source(str(folder), "picture", samples, tuple(problems), FolderReader(root, tuple(paths)))
    return require_some(found, f"files that end in {', '.join(ENDINGS)}")


class FolderReader:
    """Reads files below one folder, and only there."""

    def __init__(self, root: Path, paths: tuple[str, ...]) -> None:
        self.root, self.paths = root, paths

    def shown(self, row: int) -> Shown:
        raw = self._raw(row)
        decoded(raw, _for_people(self.paths[row]))
        return Shown(raw, media_type(raw))

    def pixels(self, row: int) -> Pixels:
        from truthfl.labeling.pixels import pixels_of

        return pixels_of(decoded(self._raw(row), _for_people(self.paths[row])))

    def _raw(self, row: int) -> bytes:
        name = _for_people(self.paths[row])
        try:
            path = (self.root / self.paths[row]).resolve(strict=True)
            if not path.is_relative_to(self.root):
                raise UnreadableError(f"{name} now leads out of the folder.")
            with path.open("rb") as file:
                raw = file.read(MOST_BYTES + 1)
        except (OSError, RuntimeError) as error:
            raise UnreadableError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
        if len(raw) > MOST_BYTES:
            raise UnreadableError(f"{name} {_too_large(len(raw))}")
        return raw


def _files(root: Path, folder: str, before: str) -> Iterator[str]:
    """Paths of pictures, from `root` on; hidden ones are left out, and links that lead out of it.

    Texts, not `Path`s: there may be very many.
    """
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}.") from None
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(root, entry.path, f"{before}{entry.name}/")
        elif entry.name.lower().endswith(ENDINGS) and entry.is_file() and not _leads_out(entry, root):
            yield before + entry.name


def _for_people(path: str) -> str:
    """As it is written, where it is written in letters; a file's name may be any bytes."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "replace")


def _leads_out(entry: os.DirEntry[str], root: Path) -> bool:
    return entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(root)


def _fingerprint(path: str, name: str) -> str:
    try:
        handle = os.open(path, READ_BYTES)
        try:
            head = os.read(handle, LOOKED_AT)
            size, tail = (len(head), b"") if len(head) < LOOKED_AT else _size_and_tail(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise UnreadableError(f"{name} cannot be read: {error.strerror}.") from None
    if not is_picture(head):
        raise UnreadableError(f"{name} is no PNG or JPEG picture, whatever its name says.")
    if size > MOST_BYTES:
        raise UnreadableError(f"{name} {_too_large(size)}")
    return content_id(b"%d " % size, head, tail)


def _size_and_tail(handle: int) -> tuple[int, bytes]:
    """Of a file whose head was read."""
    size = os.fstat(handle).st_size
    if size > 2 * LOOKED_AT:
        os.lseek(handle, -LOOKED_AT, os.SEEK_END)
    return size, os.read(handle, LOOKED_AT)


def _too_large(size: int) -> str:
    return f"has {size / 1e6:,.0f} MB; at most {MOST_BYTES / 1e6:,.0f} MB are read."
