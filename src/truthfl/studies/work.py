"""Work cut into independent pieces, each known by its content: done once, kept on disk, never done again.

A task is the name of a function and its settings, both plain text, so that another process (or, later, another machine)
can do it. What was done before an interruption is there after it. Imports `files` and `learning.array_files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import multiprocessing
import os
import signal
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import ServiceError, TruthflError
from truthfl.files import write_file
from truthfl.learning.array_files import npz_bytes

REVISION = 1  # of what the functions compute; one more when results on disk are no longer what they would be now

Result = Mapping[str, NDArray[Any]]
Progress = Callable[[int, int], None]
"""Told how many tasks are done, and of how many."""


@dataclass(frozen=True)
class WorkItem:
    """A call of `module:function` of this package with settings that JSON can hold; it returns named arrays."""

    work: str
    settings: Mapping[str, Any]

    @property
    def address(self) -> str:
        """The same for the same work, whoever asks for it and when."""
        said = json.dumps([REVISION, self.work, self.settings, _files(self.settings)], sort_keys=True, allow_nan=False)
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    def do(self) -> Result:
        """The work itself, here and now."""
        module, function = self.work.split(":")
        try:
            result: Result = getattr(importlib.import_module(f"truthfl.{module}"), function)(**self.settings)
        except TruthflError:
            raise
        except Exception as error:
            raise WorkError(f"{self.work} failed ({type(error).__name__}: {error}) with {self.settings}.") from error
        return result


class WorkError(RuntimeError):
    """A task failed, and not for what it was given: the message says which, with which settings, and how."""


def _files(settings: Mapping[str, Any]) -> list[list[Any]]:
    """Name, size and time of the files that a task's data are in, where they are files: changed data are other data."""
    source = Path(str(settings.get("data", {}).get("source", "")))
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    found = [(path, path.stat()) for path in files if path.is_file()]
    return [[str(path), seen.st_size, seen.st_mtime_ns] for path, seen in found]


@dataclass(frozen=True)
class Store:
    """A folder of results, one file each. A file has its name only once it is whole."""

    folder: Path

    def get(self, task: WorkItem) -> Result | None:
        """What was kept of this task; nothing where there is no such file, or none that can be read."""
        try:
            with self._path(task).open("rb") as file, np.load(file, allow_pickle=False) as kept:
                return {name: kept[name] for name in kept.files}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
            return None

    def put(self, task: WorkItem, result: Result) -> None:
        write_file(self._path(task), npz_bytes(result), sync=False)  # one that was lost is computed again

    def _path(self, task: WorkItem) -> Path:
        return self.folder / f"{task.address}.npz"


def do_all(
    tasks: Sequence[WorkItem], store: Store, *, workers: int | None = None, progress: Progress | None = None
) -> list[Result]:
    """The result of every task, in order; only what the store lacks is done, by so many processes."""
    results: dict[str, Result] = {}
    lacking: dict[str, WorkItem] = {}
    addresses = [task.address for task in tasks]
    for address, task in zip(addresses, tasks, strict=True):
        if address in results or address in lacking:
            continue
        kept = store.get(task)
        if kept is None:
            lacking[address] = task
        else:
            results[address] = kept
    different = len(results) + len(lacking)
    tell = progress or (lambda _done, _all: None)
    tell(len(results), different)
    count = min(workers or os.cpu_count() or 1, len(lacking))
    for address, result in _done_here(lacking) if count <= 1 else _done_by_processes(lacking, count):
        results[address] = result
        store.put(lacking[address], result)
        tell(len(results), different)
    return [results[address] for address in addresses]


def _done_here(lacking: Mapping[str, WorkItem]) -> Iterator[tuple[str, Result]]:
    for address, task in lacking.items():
        yield address, task.do()


def _done_by_processes(lacking: Mapping[str, WorkItem], count: int) -> Iterator[tuple[str, Result]]:
    """Results as they come. Whatever ends this early (an error, Ctrl-C) ends the processes at once."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    try:
        with _interrupts_later():
            running = {pool.submit(task.do): address for address, task in lacking.items()}
        for done in as_completed(running):
            yield running[done], done.result()
        pool.shutdown()
    except BrokenProcessPool:
        raise ServiceError(
            "a process at work was ended from outside, as happens when memory runs out; what was done is kept: "
            "call again, with fewer workers."
        ) from None
    finally:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """In a process at work: when the one that started it is gone, however it went, nobody waits for this one."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C reaches every process of a command; it is for the one that started the others, which ends them.

    Processes started in here never see it; this one sees it at the end.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
