"""Participants whose solo models would spoil the mean from which training starts, though the test has no scale."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attacks.federation import Federation, ledger_check
from attacks.jobs import job_text
from attacks.outcomes import Outcome, Stage, outcome
from attacks.people import Person, chosen

ROUNDS, LEAST_RIGHT = 2, 0.6
SERVER = "enrol_seconds = 600\nlabel_seconds = 120\nround_seconds = 60"
PEOPLE = (
    Person("Ada"),
    Person("Ben"),
    Person("Cleo"),
    Person("Mia", "solo-huge", "huge solo model"),
    Person("Nils", "solo-long", "long solo model"),
    Person("Olga", "solo-one-class", "solo model of one class"),
    Person("Paul", "solo-nan", "solo model that is none"),
    Person("Rosa", "solo-opposed", "opposed solo model"),
)
ATTACKS = {
    "solo-huge": "Mia's solo model is 1e6 times the honest one",
    "solo-long": "Nils's solo model is 100 times the honest one",
    "solo-one-class": "Olga's solo model has a bias of 1e5 for one class",
    "solo-nan": "Paul's solo model has NaN",
    "solo-opposed": "Rosa's solo model is the honest one times -1, whose loss is the same",
}
REASONS = {
    "solo-huge": ("it has a number beyond", "too long: the model has length"),
    "solo-long": ("too long: the model has length",),
    "solo-one-class": ("too long: the model has length",),
    "solo-nan": ("it has NaN or infinity",),
    "solo-opposed": ("it scores classes lower where they are right",),
}


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run the federation with the attackers of these attacks; its training starts from solo models."""
    people = chosen(PEOPLE, names)
    made = Federation(folder, job_text([person.name for person in people], rounds=ROUNDS, server=SERVER), people)
    with made.running("starts from solo models"):
        made.wait_for_end()
    view, (code, said) = made.view(), ledger_check(made)
    right = 0.0 if view.test is None else float(view.test.document["accuracy"])
    honest = {person.name for person in people if not person.attack}
    whole = code == 0 and right >= LEAST_RIGHT and bool(view.starts) and set(view.delivered) == honest
    for person in people:
        if person.attack:
            reasons = made.reasons(person.name)
            held = whole and any(reason.startswith(REASONS[person.attack]) for reason in reasons)
            words = (
                f"refused: {'; '.join(reasons)}; paid {made.pay().get(person.name)}; the model is right in {right:.0%}"
            )
            yield outcome(person.attack, held and made.pay()[person.name] == 0, words, otherwise=f"{words}; {said}")


STAGE = Stage("participants: solo models in the mean", ATTACKS, run)
