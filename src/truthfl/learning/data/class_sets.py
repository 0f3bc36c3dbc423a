"""The classes of a sample that may have several, as one text: in a label file, a table's cell or a .csv label file.

The names are in alphabetical order, with `SEPARATOR` between them. So equal sets are equal texts, and the text of a
single class is its name. Class names contain no `SEPARATOR` where samples may have several classes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from truthfl.errors import InputError

SEPARATOR = "|"


def joined(names: Iterable[str]) -> str:
    """The text of a set of classes."""
    return SEPARATOR.join(sorted(set(names)))


def names_in(text: str, *, several: bool = True) -> tuple[str, ...]:
    """The classes in a text. Unless a sample may have several, the text itself is the only class."""
    return tuple(text.split(SEPARATOR)) if several else (text,)


def are_known(text: str, known: Collection[str], *, several: bool) -> bool:
    """Whether all classes in a text are known."""
    return all(name in known for name in names_in(text, several=several))


def joined_from(text: str, separator: str, place: str) -> str:
    """The text of the classes in a cell of a file, separated by this separator; `place` is the cell's place."""
    names = [name.strip() for name in text.split(separator)]
    if not all(names):
        raise InputError(f"{place} has the classes {text!r}; there must be a name before and after {separator!r}.")
    wrong = next((name for name in names if SEPARATOR in name), None)
    if wrong is not None:
        raise InputError(f"{place} has the class {wrong!r}; {_no_separator()}")
    return joined(names)


def require_no_separator(classes: Iterable[str]) -> None:
    """Raise `InputError` if a class name could be mistaken for several."""
    wrong = next((name for name in classes if SEPARATOR in name), None)
    if wrong is not None:
        raise InputError(f"classes has the name {wrong!r}; {_no_separator()}")


def _no_separator() -> str:
    return f"with several labels per sample, {SEPARATOR!r} stands between names and cannot be in one."
