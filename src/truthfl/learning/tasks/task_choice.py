"""`TaskChoice`: the task of a job, in plain values that can be sent to other processes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from truthfl.custom_code import in_folder, without_folder
from truthfl.errors import InputError
from truthfl.learning.tasks.custom import own_task_class, source_digest
from truthfl.learning.tasks.task import Task

BUILT_IN = {
    "pictures": "truthfl.learning.tasks.pictures:Pictures",
    "tables": "truthfl.learning.tasks.tables:Tables",
    "texts": "truthfl.learning.tasks.texts:Texts",
}


@dataclass(frozen=True)
class TaskChoice:
    """A task by name, with its settings.

    use       "pictures", "tables" or "texts"; or custom: "FILE.py:Class" with an absolute path, "module:Class"
    settings  the other fields of a job's [task], as JSON
    """

    use: str = "pictures"
    settings: str = "{}"

    def load(self) -> Task:
        """The task; `InputError` if there is no such task, or its settings are wrong."""
        if self.is_own:
            made: type[Task] = own_task_class(self.use)
        else:
            module, _, name = BUILT_IN[self.use].partition(":")
            made = getattr(import_module(module), name)
        return made.of_document(json.loads(self.settings))

    @property
    def is_own(self) -> bool:
        """Whether it is a custom task."""
        return ":" in self.use

    @property
    def is_pictures(self) -> bool:
        """Whether it is the task of pictures, with any settings."""
        return self.use == PICTURES.use

    @property
    def name(self) -> str:
        """Its name for people: without folder and file."""
        return self.use.rpartition(":")[2]

    def source(self) -> str:
        """The digest of the file that defines a custom task; "" for built-in tasks."""
        if not self.is_own:
            return ""
        return source_digest(self.use)

    def document(self) -> dict[str, Any]:
        """JSON values for `of_document` in another process; they change when the file changes."""
        values = {"use": self.use, "settings": json.loads(self.settings)}
        return values | ({"source": self.source()} if self.is_own else {})

    def portable(self) -> dict[str, Any]:
        """The document without the folder of the file, for the job's own document."""
        return self.document() | {"use": without_folder(self.use)}

    @classmethod
    def of_document(cls, document: Mapping[str, Any] | None) -> TaskChoice:
        """The choice in these JSON values; pictures if there are none.

        `InputError` if the file of a custom task has changed since the document was made.
        """
        if document is None:
            return PICTURES
        choice = task_choice(document["use"], document["settings"])
        if document.get("source", "") != choice.source():
            raise InputError(f"the file of {choice.name} was changed in the meantime; start again.")
        return choice

    @classmethod
    def of_argument(cls, text: str) -> TaskChoice:
        """The task given by --task.

        A task's name, "FILE.py:Class", "module:Class", or a .toml file with a section [task], such as a job's.
        """
        if text.endswith(".toml"):
            return _of_section(Path(text))
        if ":" not in text and text not in BUILT_IN:
            raise InputError(
                f"task is {text!r}; it must be {', '.join(BUILT_IN)}, FILE.py:Class, module:Class, or a .toml file "
                "with a section [task]."
            )
        choice = task_choice(text, {})
        choice.load()
        return choice


PICTURES = TaskChoice()


def task_choice(use: str, settings: Mapping[str, Any], folder: Path = Path()) -> TaskChoice:
    """The task with these settings; the FILE.py of a custom task is in `folder` unless its path is absolute."""
    if not isinstance(use, str) or (":" not in use and use not in BUILT_IN):
        known = ", ".join(f'"{name}"' for name in BUILT_IN)
        raise InputError(f'use is {use!r}; it must be {known}, "FILE.py:Class" or "module:Class".')
    try:
        stated = {name: value for name, value in settings.items() if not (name == "several_labels" and value is False)}
        text = json.dumps(stated, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError):
        raise InputError("its settings must be texts, finite numbers, true or false, and lists of these.") from None
    return TaskChoice(in_folder(use, folder), text)


def absolute_argument(text: str) -> str:
    """The value of --task with an absolute path, so that a process in another folder finds the file."""
    if text.endswith(".toml"):
        return str(Path(text).resolve())
    return task_choice(text, {}).use


def _of_section(path: Path) -> TaskChoice:
    """The task in the section [task] of this file."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8")).get("task")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}.") from None
    if not isinstance(values, Mapping) or "use" not in values:
        raise InputError(f"{path} has no section [task] with use; it must say what is learned.")
    settings = {name: value for name, value in values.items() if name != "use"}
    choice = task_choice(values["use"], settings, path.parent)
    measured = [name for name in settings if name in TaskChoice(choice.use).load().fitted]
    if measured:
        raise InputError(f"[task] {measured[0]} in {path} is measured by the operator; leave it out.")
    choice.load()
    return choice
