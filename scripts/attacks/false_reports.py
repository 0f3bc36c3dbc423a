"""Participants against the others: huge, forged or missing reports; missing or wrong labels.

All run in one federation with an audition, in which the server sees single reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from attacks.federation import Federation, ledger_check
from attacks.jobs import job_text
from attacks.outcomes import Outcome, Stage, outcome
from attacks.people import Person, chosen

ROUNDS = 5
SERVER = "enrol_seconds = 600\nlabel_seconds = 30\nround_seconds = 60"
UNMASKED = "[privacy]\nsecure_aggregation = false"
PEOPLE = (
    Person("Ada"),
    Person("Ben"),
    Person("Cleo"),
    Person("Mia", "report-huge", "huge"),
    Person("Nils", "report-flipped", "flipped"),
    Person("Olga", "report-huge-at-the-end", "huge at the end"),
    Person("Paul", "node-dies", "dies"),
    Person("Rosa", "report-without-code", "no code"),
    Person("Sven", "report-with-another-code", "another code"),
    Person("Tom", "report-with-long-type", "long type"),
    Person("Uma", "never-labels", labels="none", words=("--no-page",)),
    Person("Vera", "label-of-no-class", labels="wrong"),
)
ATTACKS = {
    "report-huge": "Mia's reports are 1e6 in every place",
    "report-flipped": "Nils reports ten times the honest change, flipped",
    "report-huge-at-the-end": "Olga reports 1e6 in the last round only",
    "node-dies": "Paul's node is killed in the third round",
    "report-without-code": "Rosa's reports lack their code",
    "report-with-another-code": "Sven's reports have a code made with another's key",
    "report-with-long-type": "Tom's reports name a type of 100 KB, of escape codes",
    "never-labels": "Uma accepts and never labels",
    "label-of-no-class": "one of Vera's labels is 12, of ten classes",
    "others-pay": "all of these together, against what honest people get",
}
MOST_BYTES = 2000  # of a ledger entry about a refused report


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run the federation with the attackers of these attacks."""
    people = chosen(PEOPLE, names)
    text = job_text([person.name for person in people], rounds=ROUNDS, server=SERVER, rest=UNMASKED)
    made = Federation(folder, text, people)
    with made.running():
        made.wait_for_end()
    attackers = {person.attack: person.name for person in people if person.attack}
    for attack, judge in JUDGES.items():
        if attack in names:
            yield judge(made, attack, attackers.get(attack, ""))


def refused(expected: str, rounds: tuple[int, ...]) -> Callable[[Federation, str, str], Outcome]:
    """The attacker's reports are refused with this reason in exactly these rounds."""

    def judge(made: Federation, attack: str, name: str) -> Outcome:
        found = [entry.document for entry in made.view().rejections if entry.document["client"] == name]
        hits = [one for one in found if one["stage"] == "round" and expected in one["reason"]]
        held = tuple(one["round"] for one in hits) == rounds
        said = hits[0]["reason"] if hits else f"nothing of the kind is in the ledger: {found}"
        return outcome(attack, held, f"refused in {len(hits)} of {ROUNDS} rounds, paid {made.pay()[name]}: {said}")

    return judge


def died(made: Federation, attack: str, name: str) -> Outcome:
    view = made.view()
    held = view.finished and view.delivered.get(name, 0) < ROUNDS
    return outcome(
        attack, held, f"the others went on; {name} delivered {view.delivered.get(name, 0)} of {ROUNDS} rounds"
    )


def bounded_text(made: Federation, attack: str, name: str) -> Outcome:
    """The report is refused with a short reason without control characters."""
    first = refused("its dtype is", tuple(range(1, ROUNDS + 1)))(made, attack, name)
    longest = max(len(entry.payload) for entry in made.entries() if entry.kind == "rejection")
    plain = "\x1b" not in first.happened + made.log("serve") and longest < MOST_BYTES
    return first if plain else outcome(attack, False, f"an entry of {longest:,} characters, or an escape code")


def without_labels(made: Federation, attack: str, name: str) -> Outcome:
    view = made.view()
    held = view.finished and made.pay().get(name, 0) == 0
    return outcome(attack, held, f"{name} is paid {made.pay().get(name, 0)}; {'; '.join(made.reasons(name))}")


def told_at_once(made: Federation, attack: str, name: str) -> Outcome:
    """The label's author is told by their own command; the job goes on without them."""
    said = [line for line in made.log(name).splitlines() if "label" in line and "12" in line]
    held = bool(said) and made.view().finished and made.pay().get(name, 0) == 0
    return outcome(attack, held, f"Vera is told: {said[0] if said else made.log(name)[-300:]}")


def honest_pay(made: Federation, attack: str, _: str) -> Outcome:
    """Honest people deliver all rounds and are paid; the model is useful; the ledger holds."""
    pay, view = made.pay(), made.view()
    code, said = ledger_check(made)
    loss = view.test.document["loss"] if view.test is not None else float("inf")
    names = [person.name for person in made.people if not person.attack]
    least = min(pay.get(name, -1) for name in names)
    held = code == 0 and least > 0 and all(view.delivered.get(name) == ROUNDS for name in names)
    words = ", ".join(f"{name} {pay.get(name)}" for name in names)
    return outcome(
        attack,
        held,
        f"they are paid {words} cents, never below 0; test loss {loss:.3f}; the ledger holds",
        otherwise=said,
    )


EVERY = tuple(range(1, ROUNDS + 1))
JUDGES = {
    "report-huge": refused("too long: its change has length", EVERY),
    "report-flipped": refused("too long: its change has length", EVERY),
    "report-huge-at-the-end": refused("too long: its change has length", (ROUNDS,)),
    "node-dies": died,
    "report-without-code": refused("not authentic", EVERY),
    "report-with-another-code": refused("not authentic", EVERY),
    "report-with-long-type": bounded_text,
    "never-labels": without_labels,
    "label-of-no-class": told_at_once,
    "others-pay": honest_pay,
}
STAGE = Stage("participants: reports and labels", ATTACKS, run)
