"""What is made once per test session: by the worker that needs it first, under a lock; the others read it from disk.

Values are pickled, functions within functions by their code. Folders stand where they were made and are changed by
nobody: a test that changes one copies it.
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
    """The folder of this session that all its workers have in common."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


def shared_value(shared: Path, name: str, make: Callable):
    """What `make()` gave to the first who asked for this name."""
    file = shared / f"{name}.pickle"
    with _locked(shared / f"{name}.lock"):
        if file.exists():
            return pickle.loads(file.read_bytes())
        made = make()
        _put(file, cloudpickle.dumps(made))
        return made


def built_folder(shared: Path, name: str, build: Callable[[Path], object]) -> Path:
    """The folder that `build(folder)` filled for the first who asked for this name."""
    folder, whole = shared / name, shared / f"{name}.whole"
    with _locked(shared / f"{name}.lock"):
        if not whole.exists():
            folder.mkdir()  # fails if somebody failed to fill it
            build(folder)
            whole.touch()
    return folder


def _put(file: Path, content: bytes) -> None:
    """The file is there as a whole or not at all, also if the process is killed."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(file)


@contextmanager
def _locked(path: Path):
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
