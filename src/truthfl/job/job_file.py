"""Reads job files in TOML. Each section has the fields of one class.

A job with [data], [model] or [task] is a `DataJob`, any other a `ConstantsJob`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import resources
from inspect import signature
from pathlib import Path
from typing import Any

from truthfl.contracts.setting import Clients, Constants, Training
from truthfl.custom_code import in_folder
from truthfl.errors import InputError
from truthfl.job.classes_section import ClassesSection, classes_from
from truthfl.job.jobs import ConstantsJob, DataJob
from truthfl.job.sections import (
    CONSTANTS_CONTRACT,
    DEFAULT_CONTRACT,
    PrivacySettings,
    ServerSettings,
    contract_from,
    participants,
    task_from,
)
from truthfl.learning.data.federations import OWN, Data, ModelChoice
from truthfl.learning.tasks.task_choice import PICTURES, TaskChoice

OWN_SECTIONS = ("task", "classes")  # read by separate functions


def read_job(path: str | os.PathLike[str] | None = None) -> ConstantsJob | DataJob:
    """The job in this file; without a path, the built-in one: ten clients with MNIST digits."""
    if path is not None:
        return job_of_text(read_job_text(Path(path)), Path(path).parent, str(path))
    return job_of_text(resources.files("truthfl").joinpath("examples/mnist.toml").read_text(), Path())


def job_of_text(text: str, folder: Path, source: str = "") -> ConstantsJob | DataJob:
    """The job in this TOML text; relative paths begin in the folder.

    source  the text's file, named in errors; "" for the built-in job
    """
    tables = _tables(text, source)
    try:
        return _job(tables, folder)
    except InputError as error:
        if not source:
            raise
        raise type(error)(f"{source}: {error}") from None


def read_job_text(path: Path) -> str:
    """The text of a job file."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} cannot be read: it is not UTF-8 text.") from None


def read_classes(path: Path) -> ClassesSection:
    """The section [classes] of this file, which may be a job file or have that section only."""
    tables = _tables(read_job_text(path), str(path))
    if "classes" not in tables:
        raise InputError(f"{path} lacks the section [classes], which has the instructions.")
    try:
        return classes_from(tables["classes"], path.parent)
    except InputError as error:
        raise type(error)(f"{path}: {error}") from None


def _tables(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source or 'the built-in job'} is not valid TOML: {str(error).rstrip('.')}.") from None


def _job(tables: Mapping[str, Any], folder: Path) -> ConstantsJob | DataJob:
    """The job of these sections, in a file in this folder."""
    constants_sections: dict[str, Callable[..., Any]] = {
        "clients": Clients,
        "training": Training,
        "constants": Constants,
        "server": ServerSettings,
        "contract": partial(contract_from, CONSTANTS_CONTRACT, folder),
    }
    data_sections: dict[str, Callable[..., Any]] = {
        "clients": participants,
        "training": Training,
        "data": Data,
        "model": _plain_model,
        "server": ServerSettings,
        "privacy": PrivacySettings,
        "contract": partial(contract_from, DEFAULT_CONTRACT, folder),
    }
    known = list(dict.fromkeys([*constants_sections, *data_sections, *OWN_SECTIONS]))
    unknown = [name for name in tables if name not in known]
    if unknown:
        raise InputError(f"[{unknown[0]}] is no section of a job; the sections are {', '.join(known)}.")
    sections = data_sections if {"data", "model", "task"} & set(tables) else constants_sections
    misplaced = [name for name in tables if name not in {*sections, *OWN_SECTIONS}]
    if "classes" in tables and sections is constants_sections:
        raise InputError("[classes] belongs to a job with [data]; without samples there is nothing to label.")
    if misplaced:
        raise InputError(f"[{misplaced[0]}] does not belong to a job with [data]; it is measured from the data.")
    parts = {name: _section(name, class_, tables.get(name, {})) for name, class_ in sections.items()}
    if sections is constants_sections:
        return ConstantsJob(**parts)
    parts["server"] = replace(parts["server"], aggregation=in_folder(parts["server"].aggregation, folder))
    task = task_from(tables.get("task", {}), folder)
    _require_fitting(task, tables)
    if task.load().has_own_model:
        parts["model"] = ModelChoice(OWN, penalty=0.0)
    classes = classes_from(tables.get("classes", {}), folder)
    return DataJob(**parts, tune_step="step_size" not in tables.get("training", {}), task=task, classes=classes)


def _require_fitting(task: TaskChoice, tables: Mapping[str, Any]) -> None:
    """Raise `InputError` unless [data] and [model] go with the task."""
    if task == PICTURES:
        return
    if "source" not in tables.get("data", {}):
        known = "".join(f', or "{name}"' for name in task.load().sources)
        raise InputError(f"[data] lacks source; name a file with the operator's samples{known}.")
    if "model" in tables and task.load().has_own_model:
        raise InputError(f"[model] belongs to the built-in tasks; {task.name} has its own model.")
    if tables.get("model", {}).get("kind") == "cnn" and not task.is_pictures:
        raise InputError(f'[model] kind is "cnn"; {task.name} are learned by "softmax", or by a custom task.')


def _plain_model(kind: str = "softmax", filters: int = 8, penalty: float = 1e-3) -> ModelChoice:
    """The fields of section [model]; clipping and noise are in the section [privacy]."""
    if kind == OWN:
        raise InputError('kind is "own"; that is the model of a custom task, which needs no [model].')
    return ModelChoice(kind, filters, penalty)


def _section(section: str, class_: Callable[..., Any], values: object) -> Any:
    """The object of a section, made by its class from the section's values."""
    if not isinstance(values, Mapping):
        raise InputError(f"{section} is {values!r}; it must be a section, [{section}].")
    known = list(signature(class_).parameters)
    for name in values:
        if name not in known:
            raise InputError(f"[{section}] has no field {name!r}; its fields are {', '.join(known)}.")
    required = [name for name, p in signature(class_).parameters.items() if p.default is p.empty]
    missing = [name for name in required if name not in values]
    if missing:
        raise InputError(f"[{section}] lacks {', '.join(missing)}.")
    try:
        return class_(**values)
    except InputError as error:
        raise type(error)(f"[{section}] {error}") from None
