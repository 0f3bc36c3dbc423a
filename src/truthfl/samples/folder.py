"""Samples in a folder of picture files and its subfolders, in a stable order.

An offer asks for the first n samples. If samples were sorted by name, a file added during a job could push another one
out of the first n, and that new file would have no label. A sample's id is a hash of all bytes of its file.

Opening a folder decodes nothing. Large files are hashed once: `KnownFiles` remembers them by their system metadata.
Symbolic links out of the folder are not followed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from truthfl.coded_text import CodedText, coded, decimal, sentence_of, untranslated
from truthfl.errors import InputError, ServiceError
from truthfl.files import make_private_folder, write_file
from truthfl.samples.sample import (
    HEIC,
    ID_LENGTH,
    MAX_BYTES,
    NAMES,
    Media,
    Pixels,
    Problem,
    Shape,
    Source,
    UnreadableError,
    content_id,
    is_picture_name,
    needs_heif,
    no_picture,
    picture_format,
    reads_heic,
    require_samples,
    samples_with_unique_ids,
    unread_reason,
)

FILE_NAME = "order.json"


def in_kept_order(source: Source, home: Path) -> Source:
    """The source with known samples in their stored order, then new ones; the order is stored in `home`."""
    file = home / FILE_NAME
    stored = _read(file)
    rank = {sample: number for number, sample in enumerate(stored)}
    new = [sample for sample in source.ids if sample not in rank]
    rank |= {sample: len(stored) + number for number, sample in enumerate(new)}
    if new:
        write_file(file, json.dumps([*stored, *new]), sync=False)
    ranks = [rank[sample] for sample in source.ids]
    return source.subset(sorted(range(len(source)), key=ranks.__getitem__), ())


def _read(file: Path) -> list[str]:
    """The stored sample ids; empty if the file does not exist."""
    try:
        ids = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        ids = None
    if not isinstance(ids, list) or not all(isinstance(sample, str) for sample in ids):
        raise InputError(f"{file} cannot be read; it lists samples in their order, and may be deleted between jobs.")
    return ids


READ_BINARY = os.O_RDONLY | getattr(os, "O_BINARY", 0)
FIRST_READ = 16 * 1024  # bytes
READ_AT_ONCE = 1024 * 1024  # bytes; larger files than this are remembered
SETTLED_NS = 2_000_000_000  # a file that changed later than this ago may change again and keep its times
KNOWN_FILES = "cache/files.json"


class KnownFiles:
    """Content ids of large files, by device, inode, size and times of the last change.

    They are kept in the participant's folder, since a node opens the pictures again for each message. The inode's
    change time counts too, since programs that write into a file often reset its modification time.
    """

    def __init__(self, home: Path | None) -> None:
        self._home, self._file = home, None if home is None else home / KNOWN_FILES
        self._kept = _read_known(self._file)
        self._ids, self._used = dict(self._kept), dict[str, str]()

    def content_id(self, handle: int, size: int) -> str:
        """The content id of an open file of this size; an unknown file is read completely."""
        key = _identity(os.fstat(handle))
        found = self._ids.get(key)
        if found is None:
            found = _hash_of(handle, size)
            status = os.fstat(handle)
            if key == _identity(status) and time.time_ns() - status.st_ctime_ns > SETTLED_NS:
                self._ids[key] = found
        if key in self._ids:
            self._used[key] = found
        return found

    def keep(self) -> None:
        """Write the ids that were requested since this object was made; without the file they are computed again."""
        if self._home is not None and self._file is not None and self._used != self._kept:
            with suppress(ServiceError):
                make_private_folder(self._home)
                write_file(self._file, json.dumps(self._used), private=True, sync=False)


def open_folder(folder: Path, home: Path | None = None) -> Source:
    """Open a folder; its samples are sorted by path. Hashes of large files are kept in `home`, if given."""
    root = folder.resolve()
    known = KnownFiles(home)
    paths, names, contents, problems = [], [], [], []
    try:
        for path in sorted(_files(root, str(root), "")):
            name = _printable(path)
            try:
                reason = unread_reason(name)
                if reason is not None:
                    raise UnreadableError(reason)
                contents.append(_fingerprint(f"{root}/{path}", name, known))
            except UnreadableError as error:
                problems.append(Problem(name, sentence_of(error)))
                continue
            paths.append(path)
            names.append(name)
    finally:
        known.keep()  # even after an interrupt: hashing many photos may take minutes
    samples = samples_with_unique_ids(contents, names, range(len(paths)))
    reader = FolderReader(root, tuple(paths), tuple(contents), known)
    source = Source(str(folder), "picture", samples, tuple(problems), reader)
    return require_samples(source, f"{NAMES} files")


class FolderReader:
    """Reads files below one folder; raises `UnreadableError` for links out of it and for changed files."""

    def __init__(self, root: Path, paths: tuple[str, ...], contents: tuple[str, ...], known: KnownFiles) -> None:
        self.root, self.paths, self.contents, self.known = root, paths, contents, known

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
            if _fingerprint_of(file.fileno(), name, self.known) != self.contents[row]:
                words = "{name} is another picture than when the folder was opened; open it again."
                raise UnreadableError(coded("unreadable.changed", words, name=name))
            file.seek(0)
        except BaseException:
            file.close()
            raise
        return file


def _files(root: Path, folder: str, prefix: str) -> Iterator[str]:
    """Paths of pictures relative to `root`, without hidden files and links out of it.

    They are strings, not `Path`s, since a folder may hold very many files.

    prefix   path of `folder` relative to `root`, with a trailing slash
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
    return coded("unreadable.error", "{name} cannot be read: {error}.", name=name, error=untranslated(error))


def _fingerprint(path: str, name: str, known: KnownFiles) -> str:
    """Content id of the file at this path."""
    try:
        handle = os.open(path, READ_BINARY)
        try:
            return _fingerprint_of(handle, name, known)
        finally:
            os.close(handle)
    except OSError as error:
        raise UnreadableError(_cannot_read(name, error.strerror or str(error))) from None


def _fingerprint_of(handle: int, name: str, known: KnownFiles) -> str:
    """Content id of an open file, with few small reads, since there may be very many files."""
    try:
        head = os.read(handle, FIRST_READ)
        size = len(head) if len(head) < FIRST_READ else os.fstat(handle).st_size
        _require_picture(head, size, name)
        if size == len(head):
            return content_id(b"%d " % size, head)
        return _hash_of(handle, size) if size <= READ_AT_ONCE else known.content_id(handle, size)
    except OSError as error:
        raise UnreadableError(_cannot_read(name, error.strerror or str(error))) from None


def _require_picture(head: bytes, size: int, name: str) -> None:
    """Raise `UnreadableError` unless a file with this beginning and size is a supported picture."""
    kind = picture_format(head)
    if kind is None:
        raise UnreadableError(no_picture(name))
    if kind is HEIC and not reads_heic():
        raise UnreadableError(needs_heif(name))
    if size > MAX_BYTES:
        words, most = "{name} has {size} MB; at most {most} MB are read.", decimal(MAX_BYTES / 1e6, 0)
        raise UnreadableError(coded("unreadable.bytes", words, name=name, size=decimal(size / 1e6, 0), most=most))


def _hash_of(handle: int, size: int) -> str:
    """Content id of an open file; reads all its bytes."""
    os.lseek(handle, 0, os.SEEK_SET)
    digest = sha256(b"%d " % size)
    while block := os.read(handle, READ_AT_ONCE):
        digest.update(block)
    return digest.hexdigest()[:ID_LENGTH]


def _identity(status: os.stat_result) -> str:
    """Metadata that changes when a file's content does."""
    return f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _read_known(file: Path | None) -> dict[str, str]:
    """The content ids in a file; none if the file is missing or damaged."""
    try:
        known = {} if file is None else json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    sound = isinstance(known, dict) and all(isinstance(one, str) and len(one) == ID_LENGTH for one in known.values())
    return known if sound else {}
