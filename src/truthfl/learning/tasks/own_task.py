"""Loads a task of one's own from a file or an installed module. Imports `task`."""

from __future__ import annotations

from truthfl.errors import InputError
from truthfl.learning.task import Task


def own_task_class(use: str) -> type[Task]:
    """The class that "FILE.py:Class" or "module:Class" names; `InputError` if it is no task."""
    raise InputError(f"{use} cannot be loaded yet.")


def source_digest(use: str) -> str:
    """The SHA-256 digest of the source in which the class is defined."""
    raise InputError(f"{use} cannot be loaded yet.")
