"""Values and folders made once per test session: the first worker makes them under a lock; others read them from disk.

Values are pickled; nested functions are pickled by their code. Folders stay where they were made and never change: a
test that changes a folder copies it.
"""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import cloudpickle


def shared_folder(tmp_path_factory) -> Path:
    """This session's folder, common to all its workers."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


def shared_value(shared: Path, name: str, make: Callable):
    """The value of `make()` for the first caller with this name."""
    file = shared / f"{name}.pickle"
    with _locked(shared / f"{name}.lock"):
        if file.exists():
            return pickle.loads(file.read_bytes())
        made = make()
        _put(file, cloudpickle.dumps(made))
        return made


def built_folder(shared: Path, name: str, build: Callable[[Path], object]) -> Path:
    """The folder that `build(folder)` filled for the first caller with this name."""
    folder, whole = shared / name, shared / f"{name}.whole"
    with _locked(shared / f"{name}.lock"):
        if not whole.exists():
            folder.mkdir()  # fails if somebody failed to fill it
            build(folder)
            whole.touch()
    return folder


def _put(file: Path, content: bytes) -> None:
    """Write the file completely or not at all, even if the process is killed."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(file)


@contextmanager
def _locked(path: Path):
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
