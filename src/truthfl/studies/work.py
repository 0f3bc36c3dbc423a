"""Work items: function calls whose results are stored on disk under a hash of code, function name and settings.

An item whose result is in the store is not computed again, so an interrupted study can be continued. Items are plain
values. So other `Workers` can compute them: processes of this machine or of a cluster.
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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import truthfl
from truthfl.errors import ServiceError, TruthflError
from truthfl.files import write_file
from truthfl.learning.data.datasets import npz_bytes

Result = Mapping[str, NDArray[Any]]
Progress = Callable[[int, int], None]
"""Called with the number of finished tasks and the number of all tasks."""


class StudyTask(Protocol):
    """A task that can be computed here or elsewhere, and is identified by its content."""

    @property
    def address(self) -> str:
        """The hash of all that the result depends on."""

    def do(self) -> Result:
        """Compute the result in this process."""


@dataclass(frozen=True)
class WorkItem:
    """A call of a function of this package that returns named arrays.

    work      "module:function"
    settings  its keyword arguments, JSON values
    """

    work: str
    settings: Mapping[str, Any]

    @property
    def address(self) -> str:
        """The hash of the package's source, function, settings and data files."""
        content = [source_digest(), self.work, self.settings, _data_files(self.settings)]
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def do(self) -> Result:
        """Call the function in this process."""
        module, function = self.work.split(":")
        try:
            result: Result = getattr(importlib.import_module(f"truthfl.{module}"), function)(**self.settings)
        except TruthflError:
            raise
        except Exception as error:
            raise WorkError(f"{self.work} failed ({type(error).__name__}: {error}) with {self.settings}.") from error
        return result


class WorkError(RuntimeError):
    """A task failed with an unexpected exception; the message contains its function, settings and the exception."""


@cache
def source_digest() -> str:
    """The digest of the package's source files, so that results of different code are not confused."""
    folder = Path(truthfl.__file__).parent
    files = sorted(folder.rglob("*.py")) + sorted(folder.rglob("*.[ch]"))
    content = b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)
    return hashlib.sha256(content).hexdigest()[:16]


def federation_settings(settings: Mapping[str, Any]) -> Any:
    """The part of an item's settings that describes the federation: `federation` if there is one, else all."""
    return settings.get("federation", settings)


def _data_files(settings: Mapping[str, Any]) -> list[list[Any]]:
    """Path, size and modification time of the task's data files; empty for built-in data."""
    source = Path(str(federation_settings(settings).get("data", {}).get("source", "")))
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    stats = [(path, path.stat()) for path in files if path.is_file()]
    return [[str(path), stat.st_size, stat.st_mtime_ns] for path, stat in stats]


@dataclass(frozen=True)
class Store:
    """A folder with one .npz file per result; files are written atomically."""

    folder: Path

    def get(self, task: StudyTask) -> Result | None:
        """The stored result of a task; None if there is no file or it cannot be read."""
        try:
            with self._path(task).open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
            return None

    def put(self, task: StudyTask, result: Result) -> None:
        """Store a result. Without fsync: a lost file is computed again."""
        write_file(self._path(task), npz_bytes(result), sync=False)

    def _path(self, task: StudyTask) -> Path:
        return self.folder / f"{task.address}.npz"


def do_all(
    tasks: Sequence[StudyTask],
    store: Store,
    *,
    workers: int | Workers | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """The results of all tasks, in order; missing ones are computed by `workers` processes and stored.

    workers  a number of processes, by default the number of cores; or workers, for a caller with many batches of tasks
    """
    results: dict[str, Result] = {}
    missing: dict[str, StudyTask] = {}
    addresses = [task.address for task in tasks]
    for address, task in zip(addresses, tasks, strict=True):
        if address in results or address in missing:
            continue
        stored = store.get(task)
        if stored is None:
            missing[address] = task
        else:
            results[address] = stored
    distinct = len(results) + len(missing)
    report = progress or (lambda _done, _all: None)
    report(len(results), distinct)
    with contextlib.ExitStack() as stack:
        if isinstance(workers, Workers):
            used = workers
        else:
            used = stack.enter_context(WorkerPool(min(_count(workers), max(len(missing), 1))))
        for address, result in used.compute(missing):
            results[address] = result
            store.put(missing[address], result)
            report(len(results), distinct)
    return [results[address] for address in addresses]


def _count(workers: int | None) -> int:
    return workers or os.cpu_count() or 1


def _compute_here(missing: Mapping[str, StudyTask]) -> Iterator[tuple[str, Result]]:
    for address, task in missing.items():
        yield address, task.do()


class Workers(contextlib.AbstractContextManager["Workers"], ABC):
    """Computes the tasks of many calls of `do_all`."""

    @abstractmethod
    def compute(self, missing: Mapping[str, StudyTask]) -> Iterator[tuple[str, Result]]:
        """Results by address, in the order of completion."""


class WorkerPool(Workers):
    """Processes of this machine. They start with the first call and are terminated at the end. One is this process."""

    def __init__(self, count: int | None = None) -> None:
        self.count = _count(count)
        self.others = set(multiprocessing.active_children())
        self.executor: ProcessPoolExecutor | None = None

    def compute(self, missing: Mapping[str, StudyTask]) -> Iterator[tuple[str, Result]]:
        if self.count == 1:
            yield from _compute_here(missing)
            return
        if self.executor is None:
            spawn = multiprocessing.get_context("spawn")
            self.executor = ProcessPoolExecutor(self.count, mp_context=spawn, initializer=_end_with_parent)
        try:
            with interrupts_deferred():
                running = {self.executor.submit(task.do): address for address, task in missing.items()}
            for done in as_completed(running):
                yield running[done], done.result()
        except BrokenProcessPool:
            raise ServiceError(
                "a process at work was ended from outside, as happens when memory runs out; what was done is kept: "
                "call again, with fewer workers."
            ) from None

    def __exit__(self, *error: object) -> None:
        """End the processes: at once after an error or Ctrl-C."""
        if self.executor is None:
            return
        if error[0] is None:
            self.executor.shutdown()
        for process in set(multiprocessing.active_children()) - self.others:
            process.terminate()
        self.executor.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """In a worker process: exit when the parent process has ended."""
    parent = multiprocessing.parent_process()

    def exit_after_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=exit_after_parent, daemon=True).start()


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Block SIGINT in this context and in processes started in it; this process receives it at the end.

    Ctrl-C is sent to all processes of a command. Only the parent handles it, and terminates the others.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
