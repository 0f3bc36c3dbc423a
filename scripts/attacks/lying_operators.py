"""Operators who lie to participants, and what a curious operator sees: a federation with masked reports.

The operator's processes run changed code. The participants run truthfl unchanged and keep their own changes, to compare
them with what the operator saw.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from attacks import spies
from attacks.federation import Federation, ledger_check
from attacks.jobs import job_text
from attacks.outcomes import Outcome, Stage, outcome
from attacks.people import Person
from truthfl.home import participant_folder

ROUNDS = 5
SERVER = "enrol_seconds = 600\nlabel_seconds = 120\nround_seconds = 120"
PEOPLE = (
    Person("Ada", patch="diary"),
    Person("Ben", patch="diary"),
    Person("Cleo", patch="diary"),
    Person("Dora", patch="diary", words=("--stay",)),
)
ATTACKS = {
    "offer-unsigned": "the operator sends offers that they did not sign",
    "round-a-million": "the operator asks for round 1,000,001",
    "round-zero-model": "the operator sends the zero model, from which training began, again",
    "round-far": "the operator sends a model of their choice, far from the last",
    "struck-from-round": "the operator says that Ben dropped out of a round that Ben delivered",
    "receipt-twice": "the operator sends Dora a second receipt, of less pay",
}
REFUSALS = {
    "offer-unsigned": "the operator did not sign it",
    "round-a-million": "the contract has 5 rounds",
    "round-zero-model": "rounds that changed the model",
    "round-far": "away from the last one",
}


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run the federation with the lying operator."""
    made = Federation(folder, job_text([one.name for one in PEOPLE], rounds=ROUNDS, server=SERVER), PEOPLE)
    with made.running("lying operator"):
        made.wait_for_end()
    noted = [json.loads(line) for line in (folder / "notes.jsonl").read_text(encoding="utf-8").splitlines()]
    for attack, expected in REFUSALS.items():
        if attack in names:
            said = [one["reply"] for one in noted if one["attack"] == attack]
            held = len(said) == len(PEOPLE) and all(expected in reply for reply in said)
            yield outcome(attack, held, f"all {len(said)} refuse: {said[0] if said else 'nobody was asked'}")
    if "struck-from-round" in names:
        yield found_in_log(made, "struck-from-round", "Ben", "your computer sent 1 report")
    if "receipt-twice" in names:
        yield both_kept(made, "receipt-twice", "Dora")
    yield from spies.on_masked(made, names)


def found_in_log(made: Federation, attack: str, name: str, expected: str) -> Outcome:
    """The participant's own command says what is wrong with their receipt."""
    said = [line for line in made.log(name).splitlines() if expected in line]
    return outcome(attack, bool(said), f"{name} is told: {said[0] if said else made.log(name)[-400:]}")


def both_kept(made: Federation, attack: str, name: str) -> Outcome:
    """The second receipt does not replace the first, and the participant's own command reports a fault."""
    pays = [one["document"]["settlement"]["pay"] for one in participant_folder.receipts(made.home(name))]
    found = found_in_log(made, attack, name, "THE RECEIPT DOES NOT HOLD")
    return found if pays == [made.pay()[name], 0] else outcome(attack, False, f"receipts of {pays} are kept")


def run_other_test(folder: Path, _: set[str]) -> Iterator[Outcome]:
    """Run a federation whose operator tests another model than the trained one."""
    people = tuple(Person(person.name) for person in PEOPLE[:3])
    made = Federation(folder, job_text([one.name for one in people], rounds=2, server=SERVER), people)
    with made.running("other model"):
        made.wait_for_end()
    code, said = ledger_check(made)
    told = [line for line in made.log("Ada").splitlines() if "DOES NOT HOLD" in line]
    held = code == 1 and "another model was tested" in said and bool(told)
    yield outcome("other-model-tested", held, f"check: {said} Ada is told: {told[0] if told else 'nothing'}")


DENIED = {
    "audition-denied": ("Ben", "by the receipt none was taken", "THE OPERATOR SIGNED THAT IT ARRIVED"),
    "audition-denied-unsigned": ("Cleo", "by the receipt none was taken", ""),
}


def run_denied(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run a federation whose operator keeps the models of Ben and Cleo, and writes that they were not opened."""
    people = tuple(Person(name) for name in ("Ada", "Ben", "Cleo", "Dora", "Emil"))
    made = Federation(folder, job_text([one.name for one in people], rounds=2, server=SERVER), people)
    with made.running("auditions denied"):
        made.wait_for_end()
    code, checked = ledger_check(made)
    for attack, (name, found, signed) in DENIED.items():
        if attack not in names:
            continue
        told = [line for line in made.log(name).splitlines() if "DOES NOT HOLD" in line and found in line]
        (receipt,) = (made.home(name) / "receipts").glob("*.json")
        with_receipt, said = ledger_check(made, "--receipt", receipt)
        held = made.pay()[name] == 0 and bool(told) and signed in told[0] and (code, with_receipt) == (0, 1)
        words = f"{name}, paid 0, is told: {told[:1]} check --receipt: {said}"
        yield outcome(attack, held, words, otherwise=f"{words} check: {checked} {made.log(name)[-400:]}")


STAGE = Stage("operators and spies", ATTACKS | spies.ATTACKS, run)
OTHER_TEST = Stage(
    "operators: the test",
    {"other-model-tested": "the operator tests another model than the trained one"},
    run_other_test,
)
DENIES = Stage(
    "operators: the audition",
    {
        "audition-denied": "the operator has Ben's solo model, and writes that it was not opened in time",
        "audition-denied-unsigned": "the same with Cleo, who did not get the word that it arrived",
    },
    run_denied,
)
