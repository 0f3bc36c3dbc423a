"""Atomic writing of files: a reader sees the old file or the whole new one, even after a crash.

All commands import this module, which reports in one sentence that it needs a POSIX system.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from truthfl.errors import InputError, ServiceError, TruthflError

try:
    import fcntl
except ImportError:
    raise TruthflError(
        "this program runs on POSIX systems, such as Linux and macOS; on Windows, use it in WSL."
    ) from None

PRIVATE_FOLDER_MODE, PRIVATE_FILE_MODE = 0o700, 0o600
GITIGNORE = ".gitignore"
DRAFT = ".draft"  # suffix of files and folders that are not complete yet
_WAITS_FOR_DISK: ContextVar[bool] = ContextVar("waits_for_disk", default=True)


def write_file(
    path: Path, content: bytes | str, *, private: bool = False, keep_existing: bool = False, sync: bool = True
) -> bool:
    """Write or replace a file, and make its folder if needed; return whether this content was written.

    private        create the file readable by its owner only
    keep_existing  do not replace an existing file; of several concurrent writers, exactly one writes
    sync           wait until content and name are on the disk. Without it, the new file may be empty or gone after a
                   power failure; use False for files that are written often and can be computed again
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        if path.exists() and (keep_existing or not path.is_file()):
            return not keep_existing and _write_through(path, data)
        try:
            return _write_atomically(path, data, private=private, keep_existing=keep_existing, sync=sync)
        except FileNotFoundError:
            make_folder(path.parent)
            return _write_atomically(path, data, private=private, keep_existing=keep_existing, sync=sync)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror}.") from None


@contextmanager
def without_waiting_for_disk() -> Iterator[None]:
    """Ignore `sync` while the context lasts: for simulations, which are run again after a power failure.

    A killed process loses nothing.
    """
    before = _WAITS_FOR_DISK.set(False)
    try:
        yield
    finally:
        _WAITS_FOR_DISK.reset(before)


def wait_for_disk(handle: int) -> None:
    """Wait until what was written to this open file is on the disk, except in `without_waiting_for_disk`."""
    if _WAITS_FOR_DISK.get():
        os.fsync(handle)


def wait_for_name(path: Path) -> None:
    """Wait until the name of a new file is on the disk, in its folder, except in `without_waiting_for_disk`."""
    if not _WAITS_FOR_DISK.get():
        return
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_private_folder(folder: Path) -> None:
    """Make a folder, new or existing, private to its owner and ignored by Git.

    A folder of another user, or one that contains the current folder, stays as it is; files that are written there as
    private are still private.
    """
    try:
        existed = folder.is_dir()
        _make_folders(folder, PRIVATE_FOLDER_MODE)
        if existed and _is_own(folder):
            folder.chmod(folder.stat().st_mode & PRIVATE_FOLDER_MODE)
    except OSError as error:
        raise ServiceError(f"{folder} cannot be made private: {error.strerror}; name another folder.") from None
    keep_out_of_git(folder)


def keep_out_of_git(folder: Path) -> None:
    """Make Git ignore all files of a private folder, since `git add` would publish them with the next push.

    An existing .gitignore stays as it is; so do the folders that `make_private_folder` leaves as they are, and
    read-only folders.
    """
    with suppress(OSError, ServiceError):
        if _is_own(folder):
            write_file(folder / GITIGNORE, "*\n", private=True, keep_existing=True, sync=False)


def _is_own(folder: Path) -> bool:
    """Whether a folder belongs to this user and does not contain the current folder."""
    return folder.stat().st_uid == os.getuid() and not Path.cwd().is_relative_to(folder.resolve())


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read, unless there is one; SQLite's journals get the same mode."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE))
    except FileExistsError:
        pass
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror}.") from None


def lock_handle(handle: int) -> None:
    """Wait until nobody else holds this open file's lock, then lock it."""
    fcntl.flock(handle, fcntl.LOCK_EX)


def unlock_handle(handle: int) -> None:
    fcntl.flock(handle, fcntl.LOCK_UN)


@contextmanager
def lock_file(path: Path, in_use: str) -> Iterator[None]:
    """Hold a lock until the context or this process ends; raise ServiceError if another process holds it.

    in_use  the error's sentence; "{pid}" in it becomes the id of the process that holds the lock
    """
    create_private_file(path)
    try:
        opened = path.open("r+", encoding="utf-8", errors="replace")
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, where a file must be; remove it.") from None
    except OSError as error:
        raise ServiceError(f"{path} cannot be locked: {error.strerror}.") from None
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ServiceError(in_use.replace("{pid}", file.read(20).strip() or "unknown")) from None
        file.write(f"{os.getpid()}\n")
        file.truncate()
        file.flush()
        yield


@contextmanager
def new_private_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, private to its owner; it gets its name when the context ends without an error.

    Use it for contents that do not fit into memory. Raise `InputError` if a file of this name exists.
    """
    draft = path.with_name(f".{uuid4().hex}{DRAFT}")
    try:
        make_folder(path.parent)
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not _link_unless_exists(draft, path):
            raise InputError(f"{path} exists already, and is not replaced; name another file.")
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror or error}.") from None
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def new_private_folder(folder: Path) -> Iterator[Path]:
    """A folder to write into, private to its owner; it becomes `folder` when the context ends without an error.

    Raise `InputError` if `folder` exists and is not empty.
    """
    draft = folder.with_name(f".{uuid4().hex}{DRAFT}")
    try:
        make_folder(folder.parent)
        draft.mkdir(PRIVATE_FOLDER_MODE)
        yield draft
        keep_out_of_git(draft)
        require_empty(folder)
        os.replace(draft, folder)
    except OSError as error:
        raise ServiceError(f"{folder} cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def require_empty(folder: Path) -> None:
    """Raise `InputError` if this folder exists and is not empty."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} exists already and is no folder; name another.")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty, and nothing in it is replaced; name a new folder.")


def require_writable(folder: Path) -> None:
    """Create the folder; raise `ServiceError` at once if it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise ServiceError(f"{folder} cannot be written to ({error.strerror}); name another folder.") from None


def append_text(path: Path, text: str) -> None:
    """Append text to a file that only its owner can read; create the file if there is none."""
    create_private_file(path)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror}.") from None


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, on the disk; raise OSError if that fails."""
    try:
        _make_folders(folder)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


def _make_folders(folder: Path, mode: int = 0o777) -> None:
    """Make a folder with this mode, and its parents, and wait until their names are on the disk."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for place in new:
        wait_for_name(place)


def _write_through(path: Path, data: bytes) -> bool:
    """Write into a device or pipe, such as /dev/stdout, instead of replacing it."""
    with path.open("wb") as target:
        target.write(data)
    return True


def _write_atomically(path: Path, data: bytes, *, private: bool, keep_existing: bool, sync: bool) -> bool:
    target = path.resolve() if path.is_symlink() and not keep_existing else path
    draft = target.with_name(f".{uuid4().hex}{DRAFT}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE if private else 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if sync and _WAITS_FOR_DISK.get():
                file.flush()
                os.fsync(file.fileno())
        written = True
        if keep_existing:
            written = _link_unless_exists(draft, target)
        else:
            os.replace(draft, target)
        if sync and written:
            wait_for_name(target)
        return written
    finally:
        draft.unlink(missing_ok=True)


def _link_unless_exists(draft: Path, path: Path) -> bool:
    """Move the draft to `path` unless a file exists there; return whether it was moved."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links: the process that creates the file may replace it
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE))
        except FileExistsError:
            return False
        os.replace(draft, path)
    return True
