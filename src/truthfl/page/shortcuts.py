"""One key per class: its digit, or a letter of its name. Looks nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_lowercase, digits

TAKEN = frozenset("f")  # flags a picture


def keys_of(classes: Sequence[str]) -> tuple[str | None, ...]:
    """A key for each class, all different; None where there are more classes than keys.

    Classes that are digits have their digit. Others have the first letter of their name if it is free, then another
    letter of it, then any letter or digit that is left.
    """
    given: dict[int, str] = {at: name for at, name in enumerate(classes) if name in tuple(digits)}
    wishes = (lambda name: name[:1], lambda name: name, lambda _: ascii_lowercase + digits[1:] + digits[0])
    for wish in wishes:
        for at, name in enumerate(classes):
            if at not in given:
                _give_first_free(given, at, wish(name.lower()))
    return tuple(given.get(at) for at in range(len(classes)))


def _give_first_free(given: dict[int, str], at: int, wanted: str) -> None:
    usable = frozenset(ascii_lowercase + digits) - TAKEN - frozenset(given.values())
    free = next((key for key in wanted if key in usable), None)
    if free is not None:
        given[at] = free
