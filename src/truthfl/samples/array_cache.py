"""Cache file of one array: a process that needs the same array again maps the file and computes nothing.

A participant's node handles each message in a new process, so what is computed from her samples must be in a file to be
reused. The file holds a SHA-256, a line of JSON and the array's bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import ServiceError
from truthfl.files import write_file

TYPES = ("|u1", "<f4")


def write_cached(path: Path, key: str, header: Mapping[str, Any], array: NDArray[Any]) -> None:
    """Write an array of bytes or of float32, with JSON values beside it; a disk that takes nothing is no error."""
    values = {"key": key, **header, "shape": array.shape, "type": array.dtype.str}
    line, data = json.dumps(values).encode() + b"\n", np.ascontiguousarray(array).data
    digest = sha256(line)
    digest.update(data)
    with suppress(ServiceError):  # without the cache the next process computes again
        write_file(path, b"".join((digest.hexdigest().encode(), b"\n", line, data)), private=True, sync=False)


def read_cached(path: Path, key: str) -> tuple[dict[str, Any], NDArray[Any]] | None:
    """The JSON values and the array, read-only; None if there is no file, it has another key, or is damaged."""
    try:
        with path.open("rb") as file:
            expected, line = file.readline().strip().decode(), file.readline()
            header = json.loads(line)
            if header["key"] != key or header["type"] not in TYPES:
                return None
            content = np.asarray(np.memmap(file, np.uint8, "r", offset=file.tell()))
        digest = sha256(line)
        digest.update(content.data)
        if digest.hexdigest() != expected:
            return None
        return header, content.view(header["type"]).reshape(header["shape"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
