"""`TaskOfFiles`: a task that reads labels from a column of a file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from truthfl.errors import InputError
from truthfl.learning.class_sets import SEPARATOR, names_in
from truthfl.learning.task import ReadSamples, Task


@dataclass(frozen=True)
class TaskOfFiles(Task):
    """A task whose files have the classes in a column.

    label_separator  stands between several classes in a cell, with `several_labels`
    """

    label_separator: str = field(default=SEPARATOR, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        separator = self.label_separator
        if not isinstance(separator, str) or not separator.strip() or len(separator) > 10:
            raise InputError(f"label_separator is {separator!r}; it must be a character, as {SEPARATOR!r} or ';'.")
        if separator != SEPARATOR and not self.several_labels:
            raise InputError("label_separator is given without several_labels; it stands between several classes.")
        wrong = next((name for name in self.classes if self.several_labels and separator in name), None)
        if wrong is not None:
            raise InputError(f"classes has the name {wrong!r}; label_separator {separator!r} cannot be in a name.")

    @property
    def separator(self) -> str | None:
        """What stands between several classes; None if a sample has one."""
        return self.label_separator if self.several_labels else None

    def for_file(self, samples: ReadSamples) -> ReadSamples:
        """The samples with labels as a file has them."""
        if samples.labels is None or self.label_separator == SEPARATOR:
            return samples
        return replace(samples, labels=tuple(self.label_separator.join(names_in(one)) for one in samples.labels))
