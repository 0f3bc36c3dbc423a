"""A folder of PNG and JPEG files, and of folders of them. Looks at `sample`, `formats`, and at `pictures` late.

Nothing is decoded when it is opened. A file is known by its bytes: by all of them up to a megabyte; of a larger one, by
its size and pieces from its beginning to its end. Nothing outside the folder is read, wherever links lead.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from truthfl.errors import InputError
from truthfl.samples.formats import MOST_BYTES, is_picture, media_type
from truthfl.samples.sample import (
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
READ_BYTES = os.O_RDONLY | getattr(os, "O_BINARY", 0)
SMALL, READ_WHOLE = 16 * 1024, 1_000_000  # bytes
PIECES, PIECE = 32, 8 * 1024  # of a larger file


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
    found = Source(str(folder), "picture", samples, tuple(problems), FolderReader(root, tuple(paths), tuple(contents)))
    return require_some(found, f"files that end in {', '.join(ENDINGS)}")


class FolderReader:
    """Reads files below one folder, and only there."""

    def __init__(self, root: Path, paths: tuple[str, ...], contents: tuple[str, ...]) -> None:
        self.root, self.paths, self.contents = root, paths, contents

    def shown(self, row: int) -> Shown:
        from truthfl.samples.pictures import decoded

        raw = self._raw(row)
        decoded(raw, _for_people(self.paths[row]))
        return Shown(raw, media_type(raw))

    def pixels(self, row: int) -> Pixels:
        from truthfl.samples.pictures import decoded
        from truthfl.samples.pixels import pixels_of

        name = _for_people(self.paths[row])
        return pixels_of(decoded(self._raw(row), name), name)

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
        if _fingerprint_of(raw) != self.contents[row]:
            raise UnreadableError(f"{name} is another picture than when the folder was opened; open it again.")
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
        elif entry.name.lower().endswith(ENDINGS) and not _leads_out(entry, root) and entry.is_file():
            yield before + entry.name


def _for_people(path: str) -> str:
    """As it is written, where it is written in letters; a file's name may be any bytes."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "replace")


def _leads_out(entry: os.DirEntry[str], root: Path) -> bool:
    try:
        return entry.is_symlink() and not Path(entry.path).resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):  # it leads nowhere, or in a circle
        return True


def _fingerprint(path: str, name: str) -> str:
    """Of the file with this path, by few and small reads: there may be very many."""
    try:
        handle = os.open(path, READ_BYTES)
        try:
            head = os.read(handle, SMALL)
            if len(head) < SMALL:
                size, parts = len(head), [head]
            else:
                size = os.fstat(handle).st_size
                parts = [_read_at(handle, *piece) for piece in _pieces(size)]
        finally:
            os.close(handle)
    except OSError as error:
        raise UnreadableError(f"{name} cannot be read: {error.strerror}.") from None
    if not is_picture(head):
        raise UnreadableError(f"{name} is no PNG or JPEG picture, whatever its name says.")
    if size > MOST_BYTES:
        raise UnreadableError(f"{name} {_too_large(size)}")
    return content_id(b"%d " % size, *parts)


def _fingerprint_of(raw: bytes) -> str:
    return content_id(b"%d " % len(raw), *(raw[start : start + length] for start, length in _pieces(len(raw))))


def _pieces(size: int) -> list[tuple[int, int]]:
    """What a file is known by, as starts and lengths."""
    if size <= READ_WHOLE:
        return [(0, size)]
    return [(number * (size - PIECE) // (PIECES - 1), PIECE) for number in range(PIECES)]


def _read_at(handle: int, start: int, length: int) -> bytes:
    os.lseek(handle, start, os.SEEK_SET)
    return os.read(handle, length)


def _too_large(size: int) -> str:
    return f"has {size / 1e6:,.0f} MB; at most {MOST_BYTES / 1e6:,.0f} MB are read."
