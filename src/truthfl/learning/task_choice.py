"""`TaskChoice`: which task a job has, in plain values that can be sent to other processes.

Imports `task`, and the task's own module when it is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from truthfl.errors import InputError
from truthfl.learning.task import Task

BUILT_IN = {
    "pictures": "truthfl.learning.tasks.pictures:Pictures",
    "tables": "truthfl.learning.tasks.tables:Tables",
    "texts": "truthfl.learning.tasks.texts:Texts",
}


@dataclass(frozen=True)
class TaskChoice:
    """A task by name, with its settings.

    use       "pictures", "tables" or "texts"; of one's own: "FILE.py:Class" with an absolute path, or "module:Class"
    settings  the other fields of a job's [task], as JSON
    """

    use: str = "pictures"
    settings: str = "{}"

    def load(self) -> Task:
        """The task; `InputError` if there is no such task, or its settings are wrong."""
        return _loaded(self)

    @property
    def is_own(self) -> bool:
        """Whether it is a task of one's own."""
        return ":" in self.use

    @property
    def name(self) -> str:
        """The name by which people know it: without folder and file."""
        return self.use.rpartition(":")[2]

    def source(self) -> str:
        """The digest of the file that defines a task of one's own; "" for built-in tasks."""
        if not self.is_own:
            return ""
        from truthfl.learning.tasks.own_task import source_digest

        return source_digest(self.use)

    def document(self) -> dict[str, Any]:
        """JSON values from which `of_document` makes it again in another process; a changed file changes them."""
        values = {"use": self.use, "settings": json.loads(self.settings)}
        return values | ({"source": self.source()} if self.is_own else {})

    def portable(self) -> dict[str, Any]:
        """The document without the folder of the file, for the job's own document."""
        place, colon, name = self.use.rpartition(":")
        return self.document() | {"use": f"{Path(place).name if place.endswith('.py') else place}{colon}{name}"}

    @classmethod
    def of_document(cls, document: Mapping[str, Any] | None) -> TaskChoice:
        """The choice in these JSON values; pictures if there are none.

        `InputError` if the file of a task of one's own is another than it was when the document was made.
        """
        if document is None:
            return PICTURES
        choice = task_choice(document["use"], document["settings"])
        if document.get("source", "") != choice.source():
            raise InputError(f"the file of {choice.name} was changed in the meantime; start again.")
        return choice


PICTURES = TaskChoice()


def task_choice(use: str, settings: Mapping[str, Any], folder: Path = Path()) -> TaskChoice:
    """The task with these settings; a FILE.py of one's own is in `folder` unless its path is absolute."""
    if not isinstance(use, str) or (":" not in use and use not in BUILT_IN):
        known = ", ".join(f'"{name}"' for name in BUILT_IN)
        raise InputError(f'use is {use!r}; it must be {known}, "FILE.py:Class" or "module:Class".')
    place, colon, name = use.rpartition(":")
    if place.endswith(".py"):
        use = f"{(folder / place).resolve()}{colon}{name}"
    try:
        text = json.dumps(dict(settings), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError):
        raise InputError("its settings must be texts, finite numbers, true or false, and lists of these.") from None
    return TaskChoice(use, text)


@lru_cache(maxsize=16)
def _loaded(choice: TaskChoice) -> Task:
    if choice.is_own:
        from truthfl.learning.tasks.own_task import own_task_class

        made: type[Task] = own_task_class(choice.use)
    else:
        module, _, name = BUILT_IN[choice.use].partition(":")
        made = getattr(import_module(module), name)
    return made.of_document(json.loads(choice.settings))
