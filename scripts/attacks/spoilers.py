"""Participants who sometimes spoil the joint model with reports that are not too long, masked or bare.

Nobody may be excluded for what others can cause: a spoiled round is skipped, and that costs no honest participant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from attacks.federation import Federation, ledger_check
from attacks.jobs import mnist_job_text
from attacks.outcomes import Outcome, Stage, not_defended, outcome
from attacks.people import Person

ROUNDS, MOST_SKIPPED = 40, 1  # honest rounds that may be skipped by chance; it costs nobody
SERVER = "enrol_seconds = 600\nanswer_seconds = 60\nlabel_seconds = 120\naudition_seconds = 120\nround_seconds = 60"
UNMASKED = "[privacy]\nsecure_aggregation = false"
HONEST = ("Ada", "Ben", "Cleo")


@dataclass(frozen=True)
class Case:
    """One federation: the attackers' patches by their names, and whether reports are masked.

    spoiled  the rounds with spoiling reports, counted from 1
    right    the least accuracy of the joint model
    pays     whether the model must be that good, and pay for computing cover its cost. If not, that is a known gap:
             attackers work against the others with reports that are no longer than honest ones, or honest rounds are as
             noisy as a spoiled one
    """

    patches: Mapping[str, str]
    spoiled: frozenset[int]
    masked: bool = True
    right: float = 0.8
    pays: bool = True


TURNS, THIRDS = frozenset(range(2, ROUNDS + 1, 2)), frozenset(range(1, ROUNDS + 1, 3))
TWO = {"Dora": "pushes", "Emil": "pushes"}
CASES = {
    "spoils-last-round": Case({"Dora": "spoils at the end"}, frozenset({ROUNDS})),
    "spoils-and-behaves": Case({"Dora": "spoils by turns"}, TURNS, right=0.7, pays=False),
    "spoils-and-behaves-bare": Case({"Dora": "spoils by turns"}, TURNS, masked=False),
    "two-frame-another": Case(TWO, THIRDS, right=0.7, pays=False),
    "two-frame-another-bare": Case(TWO, THIRDS, masked=False, right=0.7, pays=False),
}
ATTACKS = {
    "spoils-last-round": "Dora's masked report of the last round has four fifths of the bound",
    "spoils-and-behaves": "Dora's masked reports of every second round have four fifths of the bound",
    "spoils-and-behaves-bare": "the same, and the server sees single reports",
    "two-frame-another": "Dora and Emil push the model back, so that the others' masked reports look too long",
    "two-frame-another-bare": "the same, and the server sees single reports",
}


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run a federation for each attack."""
    for attack, case in CASES.items():
        if attack in names:
            people = (*map(Person, HONEST), *(Person(name, attack, patch) for name, patch in case.patches.items()))
            rest = "" if case.masked else UNMASKED
            text = mnist_job_text([person.name for person in people], rounds=ROUNDS, server=SERVER, rest=rest)
            made = Federation(folder / attack, text, people)
            with made.running():
                made.wait_for_end()
            yield judged(made, attack, case)


def judged(made: Federation, attack: str, case: Case) -> Outcome:
    """The model is useful, spoiled rounds are skipped, no honest report is refused or missed, computing is paid."""
    view, (code, said) = made.view(), ledger_check(made)
    skipped = {int(one.key) for one in view.rounds if one.document["model"] == one.document["previous"]}
    right = 0.0 if view.test is None else float(view.test.document["accuracy"])
    refused = {name: len([one for one in made.reasons(name) if "spoils" in one]) for name in (*HONEST, *case.patches)}
    paid = {name: computing_pay(made, name) for name in HONEST}
    labels = {name: round(view.settlements[name].document["label_pay"]) for name in HONEST}
    held = code == 0 and len(skipped - case.spoiled) <= MOST_SKIPPED
    held = held and all(view.delivered.get(name) == ROUNDS and not refused[name] for name in HONEST)
    below_cost = any(got < least for got, least in paid.values())
    harmed = below_cost or right < case.right
    held = held and not (case.pays and harmed)
    words = (
        f"{len(skipped)} of {len(case.spoiled)} spoiled rounds are skipped, of honest ones "
        f"{len(skipped - case.spoiled)}; accuracy {right:.1%}; refused reports: "
        f"{', '.join(f'{name} {count}' for name, count in refused.items())}; paid for labels {labels}, for computing "
        f"{', '.join(f'{name} {got:.1f} (costs {least:.1f})' for name, (got, least) in paid.items())}"
    )
    if held and harmed:
        return not_defended(attack, words)
    return outcome(attack, held, words, otherwise=f"{words}; {said}")


def computing_pay(made: Federation, name: str) -> tuple[float, float]:
    """The client's pay for computing, and its cost."""
    view = made.view()
    assert view.agreement is not None
    offer = next(one for one in view.agreement.offers if one.client.name == name)
    paid = float(view.settlements[name].document["computing_pay"])
    return paid, offer.job.rounds * offer.client.batch_size * offer.client.sample_cost


STAGE = Stage("participants who spoil rounds", ATTACKS, run)
