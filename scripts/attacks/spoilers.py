"""Participants who spoil the joint model with reports that are not too long, and behave between; masked and bare.

Nobody may be excluded on what others can bring about: a spoiled round is skipped, and that costs nobody honest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from attacks.federation import Federation, ledger_check
from attacks.jobs import job_text
from attacks.outcomes import Outcome, Stage, outcome
from attacks.people import Person
from truthfl.ledger.terms import Offer

ROUNDS = 20
SERVER = "enrol_seconds = 600\nlabel_seconds = 120\nround_seconds = 60"
UNMASKED = "[privacy]\nsecure_aggregation = false"
HONEST = ("Ada", "Ben", "Cleo")
FEWEST_RIGHT = 0.8  # of the test samples, by the joint model of a job without attackers
Judge = Callable[[Federation, str], Outcome]


def spoiled(folder: Path, attack: str, patches: dict[str, str], rest: str) -> Federation:
    """A finished federation of honest people and attackers; `patches` by the attackers' names."""
    people = (*map(Person, HONEST), *(Person(name, attack, patch) for name, patch in patches.items()))
    names = [person.name for person in people]
    made = Federation(folder / attack, job_text(names, rounds=ROUNDS, server=SERVER, rest=rest), people)
    with made.running():
        made.wait_for_end()
    return made


def harmless(made: Federation, attack: str, *, in_rounds: range | None) -> Outcome:
    """The model is of use, no honest report is refused or missed, and nobody honest is paid less than was expected.

    in_rounds  exactly these were spoiled, and are skipped; None if it need not be all of them
    """
    view, (code, said) = made.view(), ledger_check(made)
    skipped = [
        number for number, entry in enumerate(view.rounds) if entry.document["model"] == entry.document["previous"]
    ]
    right = 0.0 if view.test is None else float(view.test.document["accuracy"])
    delivered = {name: view.delivered.get(name, 0) for name in HONEST}
    short = [name for name in HONEST if made.pay().get(name, 0) < _least(made, name)]
    held = code == 0 and right >= FEWEST_RIGHT and set(delivered.values()) == {ROUNDS} and not short
    if in_rounds is not None:
        held = held and skipped == list(in_rounds)
    pay = ", ".join(f"{name} {made.pay().get(name)} (at least {_least(made, name):.0f})" for name in HONEST)
    words = (
        f"{len(skipped)} of {ROUNDS} rounds are skipped, accuracy {right:.1%}; the honest delivered "
        f"{sorted(delivered.values())} rounds and are paid {pay}"
    )
    return outcome(attack, held, words, otherwise=f"{words}; {said}")


def _least(made: Federation, name: str) -> float:
    """What she is paid for her labels by her solo model, and for computing if the loss is as expected of the rounds."""
    view = made.view()
    settled = view.settlements[name].document
    offer = next(offer for offer in _offers(made) if offer.client.name == name)
    unspent = float(offer.mechanism.terms()["joint_base"][0]) * WORST_LUCK
    return float(settled["label_pay"]) + unspent - 1.0


WORST_LUCK = 0.0


def _offers(made: Federation) -> tuple[Offer, ...]:
    agreement = made.view().agreement
    return () if agreement is None else agreement.offers
