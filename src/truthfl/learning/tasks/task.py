"""`Task`: what to learn: how samples are read, turned into numbers and shown, and which model learns them.

Planning, verification, runs, servers, participants and audits access the task through this class alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from truthfl.errors import InputError
from truthfl.learning.data.class_sets import SEPARATOR, joined_from, names_in, require_no_separator
from truthfl.learning.data.samples import LabelSets
from truthfl.learning.models.model import Features, Model

MOST_CLASSES = 1000
COMPUTING = ("size", "start", "scores", "gradient")  # methods of a task that computes its model itself
OWN_STEPS = "local_steps"


@dataclass(frozen=True, eq=False)
class ReadSamples:
    """Samples as a file has them.

    raw       an array whose first axis are the samples: cells of a table (n, columns), texts (n,), pictures
    labels    names of the classes; None if the file has none. If a sample may have several: joined as in `class_sets`
    columns   names of a table's columns
    problems  a sentence for each sample left out
    file      the file that they come from, as people know it
    places    the place of each in the file, such as "line 7"
    """

    raw: NDArray[Any]
    labels: tuple[str, ...] | None = None
    columns: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    file: str = ""
    places: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.raw)

    def take(self, rows: NDArray[np.int64]) -> ReadSamples:
        """The samples at these positions, in this order."""
        chosen = rows.tolist()
        labels = None if self.labels is None else tuple(self.labels[row] for row in chosen)
        places = tuple(self.places[row] for row in chosen) if self.places else ()
        return ReadSamples(self.raw[rows], labels, self.columns, file=self.file, places=places)

    def with_several_labels(self, separator: str) -> ReadSamples:
        """The samples with labels that are sets of classes; the file separates the classes by this separator."""
        if self.labels is None:
            return self
        places = map(self.place, range(len(self)))
        return replace(self, labels=tuple(map(joined_from, self.labels, repeat(separator), places)))

    def place(self, row: int) -> str:
        """The place of this sample, such as "line 7 of rows.csv"."""
        return f"{self.places[row] if self.places else f'sample {row + 1}'} of {self.file or 'the data'}"


@dataclass(frozen=True)
class Task(ABC):
    """A task. Fields are the settings of a job's [task], as JSON values, and those that `fit` adds.

    classes   names of the classes; none: those in the operator's data
    several_labels   whether a sample may have several classes; at least one
    revision  of a built-in task: raised when it makes other features of the same settings
    fitted    names of fields that `fit` sets, and that a job file must not
    sources   names of built-in data sets of the task

    A custom model comes from `model`, or from these four methods; x are features as float32, bytes as [0, 1]:
        size(shape)                         the number of parameters, for samples of this shape
        start(shape, seed)                  the initial parameters, a flat array
        scores(params, x)                   (samples, classes): the loss is the cross-entropy of their softmax
        gradient(params, x, labels, weight) Σ_k weight_k times the gradient of sample k's loss, flat
    With them, an attribute or field `penalty` is the factor λ of (λ/2)‖params‖², which is added to loss and gradient.
    Custom local training replaces gradient steps, for a task with its own model:
        local_steps(params, x, labels, batches, step_size, penalty)   the parameters after one step on each batch, flat;
                                                                      a batch is an array of positions in x
    """

    classes: tuple[str, ...] = ()
    several_labels: bool = field(default=False, kw_only=True)
    revision: ClassVar[int] = 1
    fitted: ClassVar[tuple[str, ...]] = ()
    sources: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def read(self, path: Path) -> ReadSamples:
        """The samples in a file or folder: the operator's, with labels, or a participant's."""

    def operator_samples(self, source: str) -> ReadSamples:
        """The operator's samples, by the source in the job's [data]: a path, or a name that the task knows."""
        return self.read(Path(source))

    def fit(self, pilot: ReadSamples, known: ReadSamples) -> Self:  # noqa: ARG002
        """The task with its measurements on the operator's data: by default the names of the classes.

        pilot, known  the samples to plan on, and all that the operator has
        """
        return self if self.classes else replace(self, classes=self.class_names_in(known.labels or ()))

    def features(self, samples: ReadSamples) -> Features:
        """The samples as numbers, uint8 or float32, the first axis being the samples."""
        return np.ascontiguousarray(samples.raw, dtype=np.float32)

    def shown(self, samples: ReadSamples, row: int) -> str:
        """A sample in words, for the labeling page."""
        if samples.columns:
            return "\n".join(f"{name}: {value}" for name, value in zip(samples.columns, samples.raw[row], strict=True))
        return str(samples.raw[row])

    def model(self, shape: tuple[int, ...]) -> Model | None:
        """The model for samples of this shape; None if the job's [model] decides."""
        if not self._computes:
            return None
        from truthfl.learning.tasks.custom import TaskModel

        return TaskModel(self, shape, getattr(self, "penalty", 0.0))

    @property
    def has_own_model(self) -> bool:
        """Whether the task has its own model, so that a job's [model] does not decide."""
        return self._computes or type(self).model is not Task.model

    @property
    def has_own_steps(self) -> bool:
        """Whether the task has its own method for training its model."""
        return callable(getattr(self, OWN_STEPS, None))

    @property
    def _computes(self) -> bool:
        return all(callable(getattr(self, name, None)) for name in COMPUTING)

    def write(self, path: Path, samples: ReadSamples) -> None:  # noqa: ARG002
        """Write samples with their labels so that `read` reads them."""
        raise InputError(f"{type(self).__name__} writes no files; participants bring their own.")

    def document(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return {name: _as_lists(value) for name, value in asdict(self).items()}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Self:
        """The task with these untrusted values; `InputError` if they are not valid."""
        known = {one.name for one in fields(cls)}
        if not set(document) <= known:
            unknown = sorted(set(document) - known)[0]
            raise InputError(f"{cls.__name__} has no field {unknown!r}; its fields are {', '.join(sorted(known))}.")
        return cls(**{name: _as_tuples(value) for name, value in document.items()})

    def __post_init__(self) -> None:
        names = self.classes
        if type(self.several_labels) is not bool:
            raise InputError(f"several_labels is {self.several_labels!r}; it must be true or false.")
        if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
            raise InputError(f"classes is {names!r}; it must be a list of names.")
        if len(set(names)) != len(names) or len(names) == 1 or len(names) > MOST_CLASSES:
            raise InputError(
                f"classes has {len(names)} names; there must be 2 to {MOST_CLASSES}, all of them distinct."
            )
        if self.several_labels:
            require_no_separator(names)

    def class_names_in(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """The distinct classes in these labels: numbers by value, other names by letters."""
        return class_names(tuple(chain.from_iterable(names_in(one, several=self.several_labels) for one in labels)))

    def label_sets(self, labels: tuple[str, ...], place: str) -> LabelSets:
        """The positions of all classes in these labels, of a task that has several; `place` as in `positions`."""
        names = [names_in(one) for one in labels]
        flat = self.positions(tuple(chain.from_iterable(names)), place)
        return LabelSets(flat, np.concatenate(([0], np.cumsum([len(one) for one in names]))))

    def positions(self, labels: tuple[str, ...], place: str) -> NDArray[np.int64]:
        """The positions of these labels among the classes; `place` is the file that they are in."""
        position = {name: k for k, name in enumerate(self.classes)}
        unknown = [label for label in labels if label not in position]
        if unknown:
            known = ", ".join(self.classes[:10]) + (", …" if len(self.classes) > 10 else "")
            raise InputError(f"{place} has the label {unknown[0]!r}{_more(len(unknown) - 1)}; the classes are {known}.")
        return np.array([position[label] for label in labels], dtype=np.int64)


def class_names(labels: tuple[str, ...]) -> tuple[str, ...]:
    """The distinct labels: numbers by value, other names by letters."""
    distinct = set(labels)
    try:
        return tuple(sorted(distinct, key=float))
    except ValueError:
        return tuple(sorted(distinct))


def _more(others: int) -> str:
    return f" and {others} more that are no classes" if others else ""


def _as_lists(value: Any) -> Any:
    return [_as_lists(one) for one in value] if isinstance(value, tuple | list) else value


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(one) for one in value) if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class TaskOfFiles(Task):
    """A task whose files have the classes in a column.

    label_separator  separates several classes in a cell, with `several_labels`
    """

    label_separator: str = field(default=SEPARATOR, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        separator = self.label_separator
        if not isinstance(separator, str) or not separator.strip() or len(separator) > 10:
            raise InputError(f"label_separator is {separator!r}; it must be a character, as {SEPARATOR!r} or ';'.")
        if separator != SEPARATOR and not self.several_labels:
            raise InputError("label_separator is given without several_labels; it separates several classes.")
        wrong = next((name for name in self.classes if self.several_labels and separator in name), None)
        if wrong is not None:
            raise InputError(f"classes has the name {wrong!r}; label_separator {separator!r} cannot be in a name.")

    @property
    def separator(self) -> str | None:
        """The separator of several classes; None if a sample has one."""
        return self.label_separator if self.several_labels else None

    def for_file(self, samples: ReadSamples) -> ReadSamples:
        """The samples with labels as a file has them."""
        if samples.labels is None or self.label_separator == SEPARATOR:
            return samples
        return replace(samples, labels=tuple(self.label_separator.join(names_in(one)) for one in samples.labels))
