"""Writing files atomically: a reader sees the old file or the whole new one, also after a crash. Imports `errors`."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from uuid import uuid4

from truthfl.errors import ServiceError


def write_file(
    path: Path, content: bytes | str, *, private: bool = False, keep_existing: bool = False, sync: bool = True
) -> bool:
    """Write or replace a file, and make its folder if needed; whether this content was written.

    private        readable by its owner alone, from its first byte on
    keep_existing  leave a file that is there already as it is; of several writers at once, exactly one wins
    sync           wait until the content is on the disk. Without it a power failure may leave the new file empty; for
                   files that are written often and can be made again
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        _make_folder(path.parent)
        if path.exists() and (keep_existing or not path.is_file()):
            return not keep_existing and _write_through(path, data)
        return _write_atomically(path, data, private=private, keep_existing=keep_existing, sync=sync)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror}.") from None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None


def _write_through(path: Path, data: bytes) -> bool:
    """Into a device or a pipe, such as /dev/stdout, which must not be replaced by a file."""
    with path.open("wb") as target:
        target.write(data)
    return True


def _write_atomically(path: Path, data: bytes, *, private: bool, keep_existing: bool, sync: bool) -> bool:
    target = path.resolve() if path.is_symlink() and not keep_existing else path
    draft = target.with_name(f".{uuid4().hex}.draft")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        if keep_existing:
            return _link_unless_there(draft, target)
        os.replace(draft, target)
        return True
    finally:
        draft.unlink(missing_ok=True)


def _link_unless_there(draft: Path, path: Path) -> bool:
    """Give the draft its name unless a file has it already."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links: whoever creates the name may replace it
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        os.replace(draft, path)
    return True
