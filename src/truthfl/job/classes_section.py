"""The section [classes] of a job file: instructions for participants about the classes.

Examples are files in a folder, with one subfolder per class. This module only lists them: the server makes them small
when it makes offers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from truthfl.errors import InputError
from truthfl.instructions import require_class, require_known, require_names, require_text

FIELDS = ("instructions", "examples", "class")
CLASS_FIELDS = ("name", "description")
LARGEST_FILE = 64_000_000  # bytes, as for any picture


@dataclass(frozen=True)
class DescribedClass:
    """One class with its description and the paths of its example files."""

    name: str
    description: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClassesSection:
    """A job file's statements about the classes; none by default."""

    instructions: str = ""
    classes: tuple[DescribedClass, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.instructions or self.classes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the described classes."""
        return tuple(one.name for one in self.classes)

    def require_known(self, classes: Sequence[str]) -> None:
        """Raise `InputError` unless the described classes are among the job's classes."""
        try:
            require_known(self.names, classes)
        except InputError as error:
            raise InputError(f"[classes] {error}") from None

    def document(self) -> dict[str, Any]:
        """The section as JSON values, with digests in place of the files."""
        return {
            "instructions": self.instructions,
            "class": [
                {
                    "name": one.name,
                    "description": one.description,
                    "examples": [_file_digest(file) for file in one.files],
                }
                for one in self.classes
            ],
        }


def classes_from(values: object, folder: Path) -> ClassesSection:
    """The section [classes] with these values, from a file in `folder`."""
    if not isinstance(values, Mapping):
        raise InputError(f"classes is {values!r}; it must be a section, [classes].")
    try:
        _require_fields("it", values, FIELDS)
        text = values.get("instructions", "")
        require_text(text)
        described = _described(values.get("class", []))
        examples = _example_files(values.get("examples"), folder)
        names = list(dict.fromkeys([*described, *examples]))
        classes = tuple(DescribedClass(name, described.get(name, ""), examples.get(name, ())) for name in names)
        for one in classes:
            require_class(one.name, one.description, len(one.files))
        return ClassesSection(text, classes)
    except InputError as error:
        raise type(error)(f"[classes] {error}") from None


def _described(tables: object) -> dict[str, str]:
    """The descriptions in the tables [[classes.class]], by name."""
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise InputError("class must be tables, [[classes.class]], each with a name and a description.")
    for table in tables:
        _require_fields("class", table, CLASS_FIELDS)
        if "name" not in table:
            raise InputError("class lacks name in one of its tables.")
        require_class(table["name"], table.get("description", ""), 0)
    require_names([table["name"] for table in tables])
    return {table["name"]: table.get("description", "") for table in tables}


def _example_files(place: object, folder: Path) -> dict[str, tuple[str, ...]]:
    """The example files of each class, by class and sorted by name."""
    if place is None:
        return {}
    if not isinstance(place, str) or not place:
        raise InputError(f"examples is {place!r}; it must be the path of a folder.")
    path = (folder / place).resolve()
    if not path.is_dir():
        raise InputError(f"examples is {place!r}; there is no folder {path}.")
    try:
        found = {}
        for entry in sorted(path.iterdir()):
            if entry.name.startswith("."):
                continue
            if not entry.is_dir():
                raise InputError(f"{entry} is in no class; examples are in one subfolder per class.")
            found[entry.name] = tuple(str(file) for file in sorted(entry.iterdir()) if not file.name.startswith("."))
        return found
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def read_example(file: str) -> bytes:
    """The content of an example file."""
    path = Path(file)
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise InputError(f"{path} has {size:,} bytes; an example must have at most {LARGEST_FILE:,}.")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def _file_digest(file: str) -> str:
    return sha256(read_example(file)).hexdigest()


def _require_fields(what: str, values: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in values:
        if name not in known:
            raise InputError(f"{what} has no field {name!r}; its fields are {', '.join(known)}.")
