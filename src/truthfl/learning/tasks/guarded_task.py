"""Checks what a task of one's own gives, and puts what it raises into one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np

from truthfl.errors import InputError
from truthfl.learning.class_sets import SEPARATOR, joined, joined_from, require_no_separator
from truthfl.learning.model import Features, Model
from truthfl.learning.task import COMPUTING, OWN_STEPS, ReadSamples, Task

CALLED = ("read", "operator_samples", "fit", "features", "shown", "model", "write", "document", OWN_STEPS, *COMPUTING)
MODEL_METHODS = ("init", "scores", "loss", "accuracy", "predict", "weighted_gradient")


def failure(error: BaseException) -> str:
    """The type of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def guarded(made: type[Task]) -> type[Task]:
    """A subclass of the same name whose methods raise nothing but `InputError`, and whose results are checked.

    A class that has fields of its own and is not declared as a dataclass is made one.
    """
    if "__dataclass_fields__" not in vars(made):
        made = dataclass(frozen=True)(made)
    methods = {name: _in_words(made, name) for name in CALLED if callable(getattr(made, name, None))}
    if made.model is Task.model and not all(name in methods for name in COMPUTING):
        del methods["model"]  # `Task.has_own_model` is told by it
    checks: dict[str, Callable[[Task, Any, Any], Any]] = {
        "read": _checked_read,
        "operator_samples": _checked_read,
        "features": _checked_features,
        "fit": _checked_fit,
        "model": _CheckedModel(),
        "document": _checked_document,
    }
    methods |= {name: _with_check(methods[name], check) for name, check in checks.items() if name in methods}
    of_document = made.of_document.__func__  # type: ignore[attr-defined]

    def read_document(cls: type[Task], document: Mapping[str, Any]) -> Task:
        try:
            task: Task = of_document(cls, document)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{made.__name__} cannot be made ({failure(error)}).") from None
        return task

    names = {"__module__": made.__module__, "__qualname__": made.__qualname__, "__doc__": made.__doc__}
    return type(made.__name__, (made,), {**names, **methods, "of_document": classmethod(read_document)})


def _in_words(made: type[Task], name: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(made, name)

    @wraps(method)
    def call(self: Task, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{made.__name__}.{name} failed ({failure(error)}).") from error

    return call


def _with_check(method: Callable[..., Any], check: Callable[[Task, Any, Any], Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Task, *arguments: Any) -> Any:
        return check(self, method(self, *arguments), arguments)

    return call


def _checked_read(task: Task, read: Any, _: Any) -> ReadSamples:
    name = type(task).__name__
    if not isinstance(read, ReadSamples):
        raise InputError(f"{name}.read gave {type(read).__name__}; it must be ReadSamples.")
    try:
        raw = np.asarray(read.raw)
    except ValueError:
        raise InputError(f"{name}.read gave samples of different lengths; raw must be an array.") from None
    if raw.ndim == 0 or not len(raw):
        raise InputError(f"{name}.read found no samples.")
    labels = None if read.labels is None else tuple(_checked_label(task, label) for label in read.labels)
    if labels is not None and len(labels) != len(raw):
        raise InputError(f"{name}.read gave {len(raw)} samples and {len(labels)} labels; it must be one per sample.")
    return replace(read, raw=raw, labels=labels)


def _checked_label(task: Task, label: Any) -> str:
    """A label as text: of several classes, which may be a list, as `class_sets` joins them."""
    name = type(task).__name__
    if isinstance(label, list | tuple | set | frozenset):
        if not task.several_labels:
            raise InputError(
                f"{name}.read gave several labels of a sample; [task] several_labels must be true for that."
            )
        if not label:
            raise InputError(f"{name}.read gave a sample without any label; each must have at least one.")
        require_no_separator(map(str, label))
        return joined(map(str, label))
    return joined_from(str(label), SEPARATOR, f"{name}.read") if task.several_labels else str(label)


def _checked_features(task: Task, given: Any, arguments: Any) -> Features:
    name, count = type(task).__name__, len(arguments[0])
    features = np.asarray(given)
    if features.dtype.kind not in "fiub":
        raise InputError(f"{name}'s features have type {features.dtype}; they must be numbers.")
    if features.dtype != np.uint8:
        features = features.astype(np.float32, copy=False)
    if features.ndim < 2 or len(features) != count or features.size == 0:
        raise InputError(f"{name}'s features have shape {features.shape}; it must be ({count}, …): one row per sample.")
    finite = np.isfinite(features.reshape(count, -1)).all(axis=1)
    if not finite.all():
        raise InputError(f"{name}'s features are not finite, at sample {int(np.flatnonzero(~finite)[0])}.")
    return np.ascontiguousarray(features)


def _checked_fit(task: Task, fitted: Any, _: Any) -> Task:
    name = type(task).__name__
    if not isinstance(fitted, type(task)):
        raise InputError(f"{name}.fit gave {type(fitted).__name__}; it must be a {name}.")
    if not fitted.classes:
        raise InputError(f"{name}.fit set no classes; without classes in [task] it must.")
    return fitted


def _checked_document(task: Task, document: Any, _: Any) -> dict[str, Any]:
    values: dict[str, Any] = document
    for field, value in values.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise InputError(
                f"{type(task).__name__}'s field {field} is no JSON value; fields are texts, finite numbers, true or "
                "false, and tuples of these."
            ) from None
    return values


class _CheckedModel:
    """Checks a model that `Task.model` gave; the first of each shape is made twice, and both must start alike."""

    def __init__(self) -> None:
        self.known: set[tuple[int, ...]] = set()

    def __call__(self, task: Task, model: Any, arguments: Any) -> Model | None:
        if model is None:
            return None
        name, shape = type(task).__name__, tuple(arguments[0])
        lacking = [one for one in MODEL_METHODS if not callable(getattr(model, one, None))]
        if lacking:
            raise InputError(
                f"{name}.model gave {type(model).__name__}, which lacks {', '.join(lacking)}; from_torch, from_jax and "
                "from_sklearn make models."
            )
        if shape not in self.known:
            self.known.add(shape)
            again = task.model(shape)
            if again is None or not np.array_equal(model.init(0), again.init(0)):
                self.known.discard(shape)
                raise InputError(f"{name}'s model starts otherwise each time; from_torch needs seeded=True.")
        made: Model = model
        return made
