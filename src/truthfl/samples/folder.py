"""Samples in a folder of picture files and its subfolders.

Nothing is decoded when the folder is opened. A sample's id is a hash of the file: of all its bytes up to a megabyte,
otherwise of its size and of evenly spaced ranges. Symbolic links out of the folder are not followed. Imports `sample`,
`formats`, `coded_text`; `pictures` and `pixels` when a sample is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from truthfl.coded_text import CodedText, coded, decimal, english, sentence_of
from truthfl.errors import InputError
from truthfl.samples.formats import (
    HEIC,
    MAX_BYTES,
    NAMES,
    is_picture_name,
    needs_heif,
    no_picture,
    picture_format,
    reads_heic,
    unread_reason,
)
from truthfl.samples.sample import (
    Media,
    Pixels,
    Problem,
    Shape,
    Source,
    UnreadableError,
    content_id,
    require_samples,
    samples_with_unique_ids,
)

READ_BINARY = os.O_RDONLY | getattr(os, "O_BINARY", 0)
FIRST_READ = 16 * 1024  # bytes
HASHED_WHOLE = 1_000_000  # bytes; of larger files, only ranges are hashed
RANGES, RANGE_LENGTH = 32, 8 * 1024


def open_folder(folder: Path) -> Source:
    """Open a folder; its samples are sorted by path."""
    root = folder.resolve()
    paths, names, contents, problems = [], [], [], []
    for path in sorted(_files(root, str(root), "")):
        name = _printable(path)
        try:
            reason = unread_reason(name)
            if reason is not None:
                raise UnreadableError(reason)
            contents.append(_fingerprint(f"{root}/{path}", name))
        except UnreadableError as error:
            problems.append(Problem(name, sentence_of(error)))
            continue
        paths.append(path)
        names.append(name)
    samples = samples_with_unique_ids(contents, names, range(len(paths)))
    reader = FolderReader(root, tuple(paths), tuple(contents))
    source = Source(str(folder), "picture", samples, tuple(problems), reader)
    return require_samples(source, f"{NAMES} files")


class FolderReader:
    """Reads files below one folder; raises `UnreadableError` for links out of it and for changed files."""

    def __init__(self, root: Path, paths: tuple[str, ...], contents: tuple[str, ...]) -> None:
        self.root, self.paths, self.contents = root, paths, contents

    def media(self, row: int) -> Media:
        from truthfl.samples.pictures import decode

        with self.file(row) as file:
            decode(file, _printable(self.paths[row]))
            file.seek(0)
            raw = file.read(MAX_BYTES)
        kind = picture_format(raw)
        assert kind is not None
        return Media(raw, kind.media_type or "application/octet-stream")

    def pixels(self, row: int, shape: Shape | None = None) -> Pixels:
        from truthfl.samples.pictures import decode
        from truthfl.samples.pixels import fitted, pixels_of

        with self.file(row) as file:
            name = _printable(self.paths[row])
            if shape is None:
                return pixels_of(decode(file, name))
            return fitted(decode(file, name, (shape[1], shape[0])), shape)

    def file(self, row: int) -> BinaryIO:
        name = _printable(self.paths[row])
        try:
            path = (self.root / self.paths[row]).resolve(strict=True)
            if not path.is_relative_to(self.root):
                raise UnreadableError(coded("unreadable.outside", "{name} now leads out of the folder.", name=name))
            file = path.open("rb")
        except (OSError, RuntimeError) as error:
            raise UnreadableError(_cannot_read(name, getattr(error, "strerror", None) or str(error))) from None
        try:
            if _fingerprint_of(file.fileno(), name) != self.contents[row]:
                words = "{name} is another picture than when the folder was opened; open it again."
                raise UnreadableError(coded("unreadable.changed", words, name=name))
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file


def _files(root: Path, folder: str, prefix: str) -> Iterator[str]:
    """Paths of pictures, relative to `root`, without hidden files and links out of it.

    prefix   path of `folder` relative to `root`, with a trailing slash
    Strings, not `Path`s, since a folder may hold very many files.
    """
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}.") from None
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(root, entry.path, f"{prefix}{entry.name}/")
        elif is_picture_name(entry.name) and not _links_outside(entry, root) and entry.is_file():
            yield prefix + entry.name


def _printable(path: str) -> str:
    """The path as valid Unicode; bytes that are not UTF-8 are replaced."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "replace")


def _links_outside(entry: os.DirEntry[str], root: Path) -> bool:
    try:
        return entry.is_symlink() and not Path(entry.path).resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):  # a broken or circular link
        return True


def _cannot_read(name: str, error: str) -> CodedText:
    return coded("unreadable.error", "{name} cannot be read: {error}.", name=name, error=english(error))


def _fingerprint(path: str, name: str) -> str:
    """Content id of the file at this path."""
    try:
        handle = os.open(path, READ_BINARY)
        try:
            return _fingerprint_of(handle, name)
        finally:
            os.close(handle)
    except OSError as error:
        raise UnreadableError(_cannot_read(name, error.strerror or str(error))) from None


def _fingerprint_of(handle: int, name: str) -> str:
    """Content id of an open file, with few and small reads, since there may be very many files."""
    try:
        head = os.read(handle, FIRST_READ)
        if len(head) < FIRST_READ:
            size, parts = len(head), [head]
        else:
            size = os.fstat(handle).st_size
            parts = [_read_at(handle, start, length) for start, length in _hashed_ranges(size)]
    except OSError as error:
        raise UnreadableError(_cannot_read(name, error.strerror or str(error))) from None
    kind = picture_format(head)
    if kind is None:
        raise UnreadableError(no_picture(name))
    if kind is HEIC and not reads_heic():
        raise UnreadableError(needs_heif(name))
    if size > MAX_BYTES:
        words, most = "{name} has {size} MB; at most {most} MB are read.", decimal(MAX_BYTES / 1e6, 0)
        raise UnreadableError(coded("unreadable.bytes", words, name=name, size=decimal(size / 1e6, 0), most=most))
    return content_id(b"%d " % size, *parts)


def _hashed_ranges(size: int) -> list[tuple[int, int]]:
    """Start and length of each range of a file that is hashed."""
    if size <= HASHED_WHOLE:
        return [(0, size)]
    return [(number * (size - RANGE_LENGTH) // (RANGES - 1), RANGE_LENGTH) for number in range(RANGES)]


def _read_at(handle: int, start: int, length: int) -> bytes:
    os.lseek(handle, start, os.SEEK_SET)
    return os.read(handle, length)
