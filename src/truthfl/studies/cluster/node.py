"""The code that runs on a node of a cluster: the transferred form of a task, and its computation.

Large arrays are left out of the pickled objects and named by their digest, so that each is sent once.
"""

from __future__ import annotations

import copy
import hashlib
import io
import os
import pickle
import platform
import socket
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truthfl
from truthfl.errors import ServiceError, TruthflError
from truthfl.files import make_private_folder, write_file
from truthfl.learning.tasks.task_choice import TaskChoice
from truthfl.learning.training.compute import computed_by, kernel
from truthfl.studies.work import Result, StudyTask, WorkError, WorkItem, federation_settings, source_digest

LARGE = 1 << 14  # bytes of an array that is sent separately

Arrays = Mapping[str, NDArray[Any]]
"""Arrays by digest."""


@dataclass(frozen=True, eq=False)
class ArrayCall:
    """function(common, own), the function by name, "module:function", in this package; both arguments pickled."""

    work: str
    common: bytes
    own: bytes
    arrays: Arrays

    @cached_property
    def address(self) -> str:
        """The hash of the package's source, function and arguments, in which arrays are named by their digests."""
        parts = [source_digest().encode(), self.work.encode(), self.common, self.own]
        return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]

    def do(self) -> Result:
        """Call the function in this process."""
        module, function = self.work.split(":")
        try:
            result: Result = getattr(import_module(f"truthfl.{module}"), function)(
                unpickled(self.common, self.arrays), unpickled(self.own, self.arrays)
            )
        except TruthflError:
            raise
        except Exception as error:
            raise WorkError(f"{self.work} failed ({type(error).__name__}: {error}).") from error
        return result


def pickled(value: object, digests: Digests) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """The object without its large arrays, and these arrays."""
    file = io.BytesIO()
    pickler = _Pickler(file, digests)
    pickler.dump(value)
    return file.getvalue(), pickler.arrays


def unpickled(content: bytes, arrays: Arrays) -> Any:
    """The object with its arrays; `arrays` may contain more than it needs."""
    return _Unpickler(io.BytesIO(content), arrays).load()


class Digests:
    """Names arrays by hashes of their contents; remembers the hashes of files and of read-only arrays."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[NDArray[Any]], str]] = {}  # by id
        self._files: dict[Path, tuple[int, str, NDArray[Any]]] = {}

    def of(self, array: NDArray[Any]) -> str:
        """The hash of the array's type, shape and contents."""
        number = id(array)
        known = self._known.get(number)
        if known is not None and known[0]() is array:
            return known[1]
        head = f"{array.dtype.str} {array.shape}".encode()
        digest = hashlib.sha256(head + hashlib.sha256(np.ascontiguousarray(array).data).digest()).hexdigest()[:32]
        if not array.flags.writeable:
            self._known[number] = weakref.ref(array, lambda _: self._known.pop(number, None)), digest
        return digest

    def of_file(self, path: Path) -> tuple[str, NDArray[Any]]:
        """The file's hash and content, which is read again if the file has changed."""
        changed = path.stat().st_mtime_ns
        if path not in self._files or self._files[path][0] != changed:
            content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
            self._files[path] = changed, self.of(content), content
        return self._files[path][1:]


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, digests: Digests) -> None:
        super().__init__(file, protocol=5)
        self.digests = digests
        self.arrays: dict[str, NDArray[Any]] = {}

    def persistent_id(self, obj: Any) -> str | None:
        if type(obj) is not np.ndarray or obj.nbytes < LARGE or obj.dtype.hasobject:
            return None
        digest = self.digests.of(obj)
        self.arrays[digest] = obj
        return digest


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, arrays: Arrays) -> None:
        super().__init__(file)
        self.arrays = arrays

    def persistent_load(self, pid: Any) -> NDArray[Any]:
        return self.arrays[pid]


@dataclass(frozen=True, eq=False)
class Parcel:
    """A task: its call, and the arrays that it needs, by digest; these are sent once for all tasks."""

    call: bytes
    arrays: Arrays


def parcel_of(task: StudyTask, digests: Digests) -> Parcel:
    """The task in the form in which it is sent."""
    if isinstance(task, ArrayCall):
        return Parcel(pickle.dumps((task.work, task.common, task.own)), task.arrays)
    assert isinstance(task, WorkItem)
    files, contents = shipped_files(task.settings, digests)
    return Parcel(pickle.dumps((task.work, dict(task.settings), files)), contents)


def opened(call: bytes, arrays: Arrays) -> tuple[StudyTask, dict[str, str]]:
    """On a node: the task, and the names of its files on the other machine, by their names here."""
    work, first, second = pickle.loads(call)
    if isinstance(first, bytes):
        return ArrayCall(work, first, second, arrays), {}
    settings, names = with_local_files(first, second, arrays)
    return WorkItem(work, settings), names


SOURCE, KERNEL = "source", "kernel"
LESSER = {"avx512": ("avx2", "plain", "off"), "avx2": ("plain", "off"), "plain": ("off",)}  # instruction sets


def do_on_node(
    expected: Mapping[str, str], call: bytes, digests: tuple[str, ...], arrays: tuple[Any, ...]
) -> tuple[str, Any]:
    """The result of `node_call.call_on_node`; an empty call only asks whether this node can compute tasks."""
    _use_kernel(expected[KERNEL])
    unfit = unfit_reason(expected, facts(), socket.gethostname())
    if unfit or not call:
        return ("unfit", unfit) if unfit else ("done", {})
    names: dict[str, str] = {}
    try:
        task, names = opened(call, dict(zip(digests, arrays, strict=True)))
        with computed_by(most_threads=1):  # one task, one core
            return "done", dict(task.do())
    except (TruthflError, WorkError) as error:
        return "error", _renamed(error, names)


def facts() -> dict[str, str]:
    """The facts that must be the same on all machines, so that results are the same."""
    versions = {name: version(name.lower()) for name in ("NumPy", "SciPy")}
    python = ".".join(platform.python_version_tuple()[:2])
    return {
        "Python": python,
        "truthfl": truthfl.__version__,
        SOURCE: source_digest(),
        **versions,
        KERNEL: _kernel_name(),
    }


def unfit_reason(expected: Mapping[str, str], own: Mapping[str, str], host: str) -> str:
    """Why a node with these facts cannot compute for a machine with the expected ones; "" if it can."""
    for name, here in expected.items():
        there = own[name]
        if there == here:
            continue
        if name == SOURCE:
            return f"the truthfl {own['truthfl']} on the node {host} is not the one here: its source files are others."
        if name == KERNEL:
            return (
                f"the node {host} trains with {there} instructions and this machine with {here}, which differ in "
                f"the last digits; set TRUTHFL_KERNEL={there} here and call again."
            )
        return f"the node {host} has {name} {there} and this machine {here}; they must be the same on all of them."
    return ""


def _kernel_name() -> str:
    found = kernel()
    return "off" if found is None else found.instruction_set


def _use_kernel(wanted: str) -> None:
    """Train with these instructions, if the processor knows them."""
    if wanted in LESSER.get(_kernel_name(), ()):
        os.environ["TRUTHFL_KERNEL"] = wanted
        kernel.cache_clear()


def _renamed(error: Exception, names: Mapping[str, str]) -> Exception:
    """The error with the file names of the machine that asks."""
    if error.args and isinstance(error.args[0], str):
        text = error.args[0]
        for here, there in names.items():
            text = text.replace(here, there)
        error.args = (text, *error.args[1:])
    return error


PLACES = (
    ("data", "source"),
    ("task", "use"),
    ("aggregation", "use"),
)  # of a federation's settings that may name a file


@dataclass(frozen=True)
class ShippedFiles:
    """The files of one setting.

    setting    its place in a task's settings
    path       where they are on this machine: the file, or the folder that has them
    is_folder  whether it is a folder
    files      name and digest of each
    """

    setting: tuple[str, str]
    path: str
    is_folder: bool
    files: tuple[tuple[str, str], ...]


def shipped_files(
    settings: Mapping[str, Any], digests: Digests
) -> tuple[tuple[ShippedFiles, ...], dict[str, NDArray[Any]]]:
    """The files named by these settings, and their contents by digest; none if they name only built-in data."""
    shipped: list[ShippedFiles] = []
    contents: dict[str, NDArray[Any]] = {}
    for setting in PLACES:
        named = _path_in(settings, setting)
        path = Path(named)
        if not named or not path.exists():
            continue
        files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
        read = [(each.name, *digests.of_file(each)) for each in files]
        contents |= {digest: content for _, digest, content in read}
        own = tuple((name, digest) for name, digest, _ in read)
        shipped.append(ShippedFiles(setting, named, path.is_dir(), own))
    return tuple(shipped), contents


def with_local_files(
    settings: Mapping[str, Any], shipped: tuple[ShippedFiles, ...], contents: Arrays
) -> tuple[dict[str, Any], dict[str, str]]:
    """On a node: the settings with the local names of the files, and their original names by the local ones."""
    changed, names = copy.deepcopy(dict(settings)), dict[str, str]()
    for each in shipped:
        content = hashlib.sha256(repr(each.files).encode()).hexdigest()[:16]
        folder = _folder() / content
        for name, digest in each.files:
            size = contents[digest].nbytes
            if not (folder / name).is_file() or (folder / name).stat().st_size != size:
                write_file(folder / name, contents[digest].tobytes(), private=True, sync=False)
        here = str(folder if each.is_folder else folder / each.files[0][0])
        section, field = each.setting
        place = federation_settings(changed)[section]
        place[field] = place[field].replace(each.path, here, 1)
        names[here] = each.path
    return changed, names


def _path_in(settings: Mapping[str, Any], setting: tuple[str, str]) -> str:
    """The path at this place, without the name of a class; "" if there is none, or for built-in data."""
    settings = federation_settings(settings)
    section = settings.get(setting[0])
    value = str(section.get(setting[1], "")) if isinstance(section, Mapping) else ""
    if setting[0] == "data":
        return "" if value in TaskChoice.of_document(settings.get("task")).load().sources else value
    place = value.rpartition(":")[0]
    return place if place.endswith(".py") else ""


def _folder() -> Path:
    """The folder for this user's files on a node; other users cannot write to it."""
    folder = Path(tempfile.gettempdir()) / f"truthfl-{os.getuid()}"
    make_private_folder(folder)
    if folder.stat().st_uid != os.getuid():
        raise ServiceError(f"{folder} on a node of the cluster belongs to another user; set TMPDIR there.")
    return folder
