"""Participants with impossible descriptions, and the server's command given again after the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attacks import outsiders
from attacks.federation import Federation, ledger_check, truthfl
from attacks.jobs import job_text
from attacks.outcomes import Outcome, Stage, outcome
from attacks.people import Person, chosen

ROUNDS = 7
SERVER = "enrol_seconds = 600\nlabel_seconds = 120\nround_seconds = 120"
PEOPLE = (
    Person("Ada"),
    Person("Ben"),
    Person("Cleo"),
    Person("Finn", "joins-with-four-pictures", pictures=4),
    Person("Gus", "joins-with-one-picture", pictures=1),
    Person("Hal", "joins-with-no-cost", words=("--sample-cost", "1e-29")),
    Person("Ida", "joins-with-half-a-letter", "half a letter"),
    Person("Jan", "joins-with-escape-codes", "escape codes"),
    Person("Kim", "joins-as-another", "as Ada"),
    Person("Lou", "report-huge-masked", "unclipped"),
)
ATTACKS = {
    "joins-with-four-pictures": "Finn brings 4 of 60 pictures",
    "joins-with-one-picture": "Gus brings 1 of 60 pictures",
    "joins-with-no-cost": "Hal states 1e-29 as the cost of a sample",
    "joins-with-half-a-letter": "Ida's name is a lone surrogate",
    "joins-with-escape-codes": "Jan's name clears the operator's terminal",
    "joins-as-another": "Kim's connection enrols with Ada's name and key",
    "report-huge-masked": "Lou's masked reports are as long as can be",
    "job-goes-on": "all of these together, against a job of honest people",
    "second-job": "the operator gives the same command again after the end",
}
REASONS = {
    "joins-with-four-pictures": "Finn brings 4 samples; the job asks for",
    "joins-with-one-picture": "Gus brings 1 sample; the job asks for",
    "joins-with-no-cost": "sample_cost is 1e-29; the job reckons with",
    "joins-with-half-a-letter": "a document cannot be written down",
    "joins-with-escape-codes": "name is '\\x1b[2J",
    "joins-as-another": "a client's description is not signed by the key that it names",
}


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run the federation with the attackers of these attacks."""
    people = chosen(PEOPLE, names)
    made = Federation(folder, job_text([one.name for one in people], rounds=ROUNDS, server=SERVER), people)
    with made.running():
        yield from outsiders.while_running(made, names)
        for person in people:
            if person.attack in REASONS:
                yield not_taken_in(made, person)
        made.wait_for_end()
    if "report-huge-masked" in names:
        yield skipped(made, "report-huge-masked", "Lou")
    if "job-goes-on" in names:
        yield goes_on(made, "job-goes-on")
    if "second-job" in names:
        yield second_job(made, "second-job")
    yield from outsiders.afterwards(made, names)


def not_taken_in(made: Federation, person: Person) -> Outcome:
    """The ledger and the participant's command, which ends, have the refusal. An honest join then succeeds."""
    made.wait_until(lambda: made.exit_code(person.name) is not None)
    said = [reason for reason in made.reasons(None) if reason.startswith(REASONS[person.attack])]
    log, code = made.log(person.name), made.exit_code(person.name)
    told = [line for line in log.splitlines() if "does not admit you" in line]
    made.make_data(person.name)
    made.join(Person(person.name))
    held = bool(said) and bool(told) and code == 1 and "\x1b" not in log + made.log("serve")
    return outcome(person.attack, held, f"refused: {said[0] if said else log[-300:]}")


def skipped(made: Federation, attack: str, name: str) -> Outcome:
    """Sums that are too long are left out: the model stays unchanged, and nobody is named or excluded."""
    view = made.view()
    refused = [str(entry.document["refused"]) for entry in view.rounds if "refused" in entry.document]
    unchanged = sum(entry.document["previous"] == entry.document["model"] for entry in view.rounds)
    named = [
        reason for one in made.people for reason in made.reasons(one.name) if "exclude" in reason or "spoil" in reason
    ]
    words = (
        f"{unchanged} of {ROUNDS} rounds changed nothing; {name} is paid {made.pay().get(name)}; refused: {refused[:1]}"
    )
    return outcome(
        attack, unchanged == len(refused) == ROUNDS and not named, words, otherwise=f"{words}; named: {named}"
    )


def goes_on(made: Federation, attack: str) -> Outcome:
    """Honest people are paid; no escape code is shown; the ledger holds."""
    view, pay = made.view(), made.pay()
    code, said = ledger_check(made)
    shown = truthfl("ledger", "show", "served/ledger.db", "--rows", folder=made.folder).stdout
    honest = [person.name for person in made.people if not person.attack]
    held = code == 0 and "\x1b" not in shown + said + made.log("serve")
    held = held and view.finished and all(pay[name] > 0 for name in honest)
    words = ", ".join(f"{name} {pay.get(name)}" for name in honest)
    return outcome(attack, held, f"{words} cents; the ledger holds", otherwise=f"{words}; {said}")


def second_job(made: Federation, attack: str) -> Outcome:
    """The same command after completion shows the result, and opens no second payable job."""
    before = made.entries()
    again = truthfl(*made.serve_words, folder=made.folder)
    held = again.returncode == 0 and "is complete; --new begins another" in again.stdout and made.entries() == before
    said = again.stdout.partition("\n")[0]
    return outcome(attack, held, f"no row is added: {said}", otherwise=again.stdout + again.stderr)


STAGE = Stage("participants: joining; outsiders", ATTACKS | outsiders.ATTACKS, run)
