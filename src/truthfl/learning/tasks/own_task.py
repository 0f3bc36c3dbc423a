"""Loads a task of one's own from a file or an installed module.

A file is read and executed once per process, and its digest is that of the source which was executed: what a process
computes and what it says about its source cannot differ.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from inspect import isclass
from pathlib import Path
from types import ModuleType

from truthfl.errors import InputError
from truthfl.learning.task import COMPUTING, OWN_STEPS, Task
from truthfl.learning.tasks.guarded_task import failure, guarded


@dataclass(frozen=True)
class _Loaded:
    made: type[Task]
    source: str


_LOADED: dict[str, _Loaded] = {}  # by "FILE.py:Class" or "module:Class"
_SOURCES: dict[str, str] = {}  # by module
_LOCK = threading.RLock()  # a file may load another task


def own_task_class(use: str) -> type[Task]:
    """The class that "FILE.py:Class" or "module:Class" names; `InputError` if it is no task.

    Whatever else its methods raise becomes an `InputError` that names the method.
    """
    return _loaded(use).made


def source_digest(use: str) -> str:
    """The SHA-256 digest of the text of the file that defines the class, with line ends as on Linux."""
    return _loaded(use).source


def _loaded(use: str) -> _Loaded:
    with _LOCK:
        if use not in _LOADED:
            _LOADED[use] = _load(use)
        return _LOADED[use]


def _load(use: str) -> _Loaded:
    place, _, name = use.rpartition(":")
    shown = Path(place).name if place.endswith(".py") else place
    module = module_of_file(Path(place), name) if place.endswith(".py") else installed_module(place)
    made = getattr(module, name, None)
    if not isclass(made):
        tasks = [one for one, value in vars(module).items() if _is_task_of(module, value)]
        raise InputError(f"{shown} has no class {name}; it has {', '.join(tasks) if tasks else 'no task'}.")
    if not issubclass(made, Task):
        raise InputError(f"{name} is no Task; it must derive from truthfl.simulate.Task.")
    _require_methods(made)
    return _Loaded(guarded(made), digest_of_module(sys.modules[made.__module__]))


def _is_task_of(module: ModuleType, value: object) -> bool:
    return isclass(value) and issubclass(value, Task) and value.__module__ == module.__name__


def _require_methods(made: type[Task]) -> None:
    lacking = sorted(made.__abstractmethods__)
    if lacking:
        raise InputError(f"{made.__name__} lacks {', '.join(lacking)}.")
    given = [name for name in COMPUTING if callable(getattr(made, name, None))]
    if given and len(given) < len(COMPUTING) and made.model is Task.model:
        lacking = [name for name in COMPUTING if name not in given]
        raise InputError(
            f"{made.__name__} has {', '.join(given)} and lacks {', '.join(lacking)}; a model of one's own is all four "
            "of size, start, scores and gradient, or made by the method model."
        )
    if callable(getattr(made, OWN_STEPS, None)) and not given and made.model is Task.model:
        raise InputError(f"{made.__name__} has {OWN_STEPS} and no model of its own; it must have one, by model.")


def module_of_file(path: Path, name: str) -> ModuleType:
    """The module in this file, which should define `name`; executed once per process."""
    if not path.is_file():
        raise InputError(f"{path} does not exist; it must be the file that defines {name}.")
    known = f"truthfl_task_{sha256(str(path).encode()).hexdigest()[:12]}"
    if known in sys.modules:
        return sys.modules[known]
    spec = importlib.util.spec_from_file_location(known, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[known] = module
    try:
        text = path.read_bytes()
        _SOURCES[known] = _digest(text)
        exec(compile(text, str(path), "exec"), module.__dict__)  # not by the loader, whose .pyc may be of another text
    except (Exception, SystemExit) as error:
        del sys.modules[known]
        raise InputError(f"{path.name} cannot be imported ({failure(error)}).") from None
    return module


def installed_module(name: str) -> ModuleType:
    """The installed module of this name."""
    try:
        return import_module(name)
    except (Exception, SystemExit) as error:
        raise InputError(f"{name} cannot be imported ({failure(error)}).") from None


def digest_of_module(module: ModuleType) -> str:
    """The SHA-256 digest of the text of the module's file, with line ends as on Linux."""
    name = module.__name__
    if name not in _SOURCES:
        try:
            _SOURCES[name] = _digest(Path(str(module.__file__)).read_bytes())
        except OSError:
            raise InputError(f"the source of {name} cannot be read; it must be a file.") from None
    return _SOURCES[name]


def _digest(text: bytes) -> str:
    return sha256(text.replace(b"\r\n", b"\n")).hexdigest()
