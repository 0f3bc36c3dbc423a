"""The people who join a federation: honest ones, and attackers with changed code, data or options."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Person:
    """A person who joins.

    attack   the person's attack; "" for an honest person
    patch    the name in `patches.dishonest` of the changes to the person's code; "" for unchanged truthfl
    pictures how many of their pictures they bring; None for all
    labels   "given"; "none": pictures without labels; "wrong": one label is of no class
    words    more options of truthfl join
    """

    name: str
    attack: str = ""
    patch: str = ""
    pictures: int | None = None
    labels: str = "given"
    words: tuple[str, ...] = ()


def chosen(people: tuple[Person, ...], attacks: set[str]) -> tuple[Person, ...]:
    """The honest people, and the attackers whose attacks run."""
    return tuple(person for person in people if not person.attack or person.attack in attacks)
