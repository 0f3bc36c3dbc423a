"""The instructions of a section [classes], with its examples made small and kept in a folder."""

from __future__ import annotations

from pathlib import Path

from truthfl.errors import InputError
from truthfl.instructions import ClassInstructions, Example, Instructions
from truthfl.job.classes_section import ClassesSection, read_example
from truthfl.samples.example_files import keep_example, small_example


def kept_instructions(section: ClassesSection, home: Path) -> Instructions | None:
    """The instructions, whose examples are in the folder `home` when this returns; None if there are none."""
    if not section:
        return None
    try:
        small = [[small_example(read_example(file), file) for file in one.files] for one in section.classes]
        classes = tuple(
            ClassInstructions(one.name, one.description, _distinct([example for example, _ in files]))
            for one, files in zip(section.classes, small, strict=True)
        )
        instructions = Instructions(section.instructions, classes)
    except InputError as error:
        raise InputError(f"[classes] {error}") from None
    for example, content in (one for files in small for one in files):
        keep_example(home, example, content)
    return instructions


def _distinct(examples: list[Example]) -> tuple[Example, ...]:
    return tuple(dict.fromkeys(examples))
