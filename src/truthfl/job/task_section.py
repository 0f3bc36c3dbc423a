"""The section [task] of a job file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from truthfl.errors import InputError
from truthfl.learning.task import Task
from truthfl.learning.task_choice import PICTURES, TaskChoice, task_choice


def task_from(values: object, folder: Path) -> TaskChoice:
    """The task that a section [task] names; pictures if it is empty. A FILE.py is looked for in `folder`."""
    if not isinstance(values, Mapping):
        raise InputError(f"task is {values!r}; it must be a section, [task].")
    if not values:
        return PICTURES
    if "use" not in values:
        raise InputError('[task] lacks use; it is "pictures", "tables", "texts", "FILE.py:Class" or "module:Class".')
    settings = {name: value for name, value in values.items() if name != "use"}
    try:
        choice = task_choice(values["use"], settings, folder)
        _require_settings(TaskChoice(choice.use).load(), settings)
        choice.load()
    except InputError as error:
        raise type(error)(f"[task] {error}") from None
    return choice


def _require_settings(task: Task, settings: Mapping[str, object]) -> None:
    """Raise `InputError` unless these are fields that a job file may set."""
    known = [one.name for one in fields(task) if one.name not in task.fitted]
    for name in settings:
        if name in task.fitted:
            raise InputError(f"{name} is measured on the operator's data; the fields are use, {', '.join(known)}.")
        if name not in known:
            raise InputError(f"has no field {name!r}; its fields are use, {', '.join(known)}.")
