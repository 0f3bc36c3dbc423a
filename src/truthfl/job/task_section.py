"""The section [task] of a job file. Imports `learning.task_choice`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from truthfl.errors import InputError
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
        task = choice.load()
    except InputError as error:
        raise type(error)(f"[task] {error}") from None
    fitted = [name for name in settings if name in task.fitted]
    if fitted:
        known = ", ".join(["use", *(one.name for one in fields(task) if one.name not in task.fitted)])
        raise InputError(f"[task] {fitted[0]} is measured on the operator's data; its fields are {known}.")
    return PICTURES if choice.use == PICTURES.use and not settings else choice
