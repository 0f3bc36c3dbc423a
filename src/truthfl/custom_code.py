"""Custom code that a job or its user names: "FILE.py:NAME", or "module:NAME" of an installed module.

A file is read and executed once per process, and its digest is the digest of the executed source. So a process always
reports the source that it runs.
"""

from __future__ import annotations

import importlib.util
import sys
from hashlib import sha256
from importlib import import_module
from inspect import isclass
from pathlib import Path
from types import ModuleType
from typing import Any

from truthfl.errors import InputError

_SOURCES: dict[str, str] = {}  # by module


def in_folder(use: str, folder: Path = Path()) -> str:
    """The name with its file's full path, which begins in this folder; any other text unchanged."""
    place, colon, name = use.rpartition(":")
    return f"{(folder / place).resolve()}{colon}{name}" if place.endswith(".py") else use


def without_folder(use: str) -> str:
    """The name without the folder of its file, as documents have it."""
    place, colon, name = use.rpartition(":")
    return f"{Path(place).name if place.endswith('.py') else place}{colon}{name}"


def class_named(use: str, base: type, what: str) -> Any:
    """The class of this name; `InputError` unless it derives from `base`, a public class, and lacks no method.

    what  a word for `base`
    """
    module, name = module_of(use), use.rpartition(":")[2]
    made: Any = getattr(module, name, None)
    if not isclass(made):
        known = [one for one, value in vars(module).items() if _is_made_in(module, value, base)]
        there = ", ".join(known) if known else f"no {what}"
        raise InputError(f"{_place(use)} has no class {name}; it has {there}.")
    if not issubclass(made, base):
        raise InputError(f"{name} is no {base.__name__}; it must derive from {PUBLIC[what]}.")
    lacking = sorted(getattr(made, "__abstractmethods__", ()))
    if lacking:
        raise InputError(f"{name} lacks {', '.join(lacking)}.")
    return made


PUBLIC = {"task": "truthfl.simulate.Task", "contract": "truthfl.Contract"}


def _is_made_in(module: ModuleType, value: object, base: type) -> bool:
    return isclass(value) and issubclass(value, base) and value.__module__ == module.__name__


def _place(use: str) -> str:
    return without_folder(use).rpartition(":")[0]


def module_of(use: str) -> ModuleType:
    """The module of this name, executed once per process; `InputError` if that fails."""
    place, _, name = use.rpartition(":")
    return _module_of_file(Path(place), name) if place.endswith(".py") else _installed_module(place)


def _module_of_file(path: Path, name: str) -> ModuleType:
    """The module in this file, which should define `name`; executed once per process."""
    if not path.is_file():
        raise InputError(f"{path} does not exist; it must be the file that defines {name}.")
    known = f"truthfl_custom_{sha256(str(path).encode()).hexdigest()[:12]}"
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


def _installed_module(name: str) -> ModuleType:
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


def failure(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
