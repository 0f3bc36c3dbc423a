"""Writing files atomically: a reader sees the old file or the whole new one, also after a crash. Imports `errors`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from truthfl.errors import ServiceError


def write_file(path: Path, content: bytes | str, *, private: bool = False, keep_existing: bool = False) -> None:
    """Write or replace a file, and make its folder if needed.

    private        readable by its owner alone, from its first byte on
    keep_existing  leave a file that is there already as it is; of several writers at once, exactly one wins
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    draft = path.with_name(f".{path.name}.{uuid4().hex}.draft")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with os.fdopen(
                os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666), "wb"
            ) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if keep_existing:
                _link_unless_there(draft, path)
            else:
                draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ServiceError(f"{path} cannot be written: {error.strerror}.") from None


def _link_unless_there(draft: Path, path: Path) -> None:
    with suppress(FileExistsError):
        os.link(draft, path)
