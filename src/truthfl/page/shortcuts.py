"""Keyboard shortcuts of the classes: a digit, or a letter of the name."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, digits

RESERVED = frozenset("fi")  # flag a picture, open the instructions
USABLE = frozenset(ascii_lowercase + digits) - RESERVED


def keys_of(classes: Sequence[str]) -> tuple[str | None, ...]:
    """A key for each class, all different; None for all where there are more classes than keys: they are searched.

    A class named by a digit gets that digit. Others get the first letter of their name if it is free, then another
    letter of it, then any free letter or digit.
    """
    if len(classes) > len(USABLE):
        return (None,) * len(classes)
    keys: dict[int, str] = {index: name for index, name in enumerate(classes) if name in tuple(digits)}
    preferences = (lambda name: name[:1], lambda name: name, lambda _: ascii_lowercase + digits[1:] + digits[0])
    for preferred in preferences:
        for index, name in enumerate(classes):
            if index not in keys:
                _assign_first_free(keys, index, preferred(name.lower()))
    return tuple(keys.get(index) for index in range(len(classes)))


def _assign_first_free(keys: dict[int, str], index: int, candidates: str) -> None:
    free = next((key for key in candidates if key in USABLE.difference(keys.values())), None)
    if free is not None:
        keys[index] = free
