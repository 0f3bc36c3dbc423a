"""Attacks and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HELD, FAILED, NOT_DEFENDED, SKIPPED = "held", "DID NOT HOLD", "not defended (documented)", "skipped"


@dataclass(frozen=True)
class Outcome:
    """How the attack of this name ended: the verdict, and in one line what happened."""

    attack: str
    verdict: str
    happened: str


def outcome(attack: str, held: bool, happened: str, *, otherwise: str = "") -> Outcome:
    """The outcome of a defended attack; `otherwise` is what happened if it did not hold."""
    return Outcome(attack, HELD if held else FAILED, one_line(happened if held else otherwise or happened))


def not_defended(attack: str, happened: str) -> Outcome:
    """The outcome of an attack that docs/security.md lists as not defended."""
    return Outcome(attack, NOT_DEFENDED, one_line(happened))


def one_line(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True, eq=False)
class Stage:
    """Attacks that share a federation or a ledger.

    attacks  by name: who does what
    run      called with a separate folder and the names of the attacks to run
    short    whether it is part of the short form
    """

    title: str
    attacks: dict[str, str]
    run: Callable[[Path, set[str]], Iterator[Outcome]]
    short: bool = False
