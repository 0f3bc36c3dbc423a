"""Those who join a federation: honest people, and attackers with other code, other data or other words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Person:
    """One who joins.

    attack   the attack that she makes; "" for an honest person
    patch    the name in `patches.dishonest` of what her own code does otherwise; "" for truthfl as it is
    pictures how many of her pictures she brings; None for all
    labels   "given"; "none": pictures without labels; "wrong": one label is that of no class
    words    more options of truthfl join
    """

    name: str
    attack: str = ""
    patch: str = ""
    pictures: int | None = None
    labels: str = "given"
    words: tuple[str, ...] = ()


def chosen(people: tuple[Person, ...], attacks: set[str]) -> tuple[Person, ...]:
    """The honest people, and those whose attacks are to be run."""
    return tuple(person for person in people if not person.attack or person.attack in attacks)
