"""The stage of intruders and forgers of commands; one of the honest people is invited."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attacks import invitations, operators_tools, strangers
from attacks.federation import Federation
from attacks.jobs import job_text
from attacks.outcomes import Outcome, Stage
from attacks.people import Person

ROUNDS = 2
SERVER = "enrol_seconds = 600\nlabel_seconds = 120\nround_seconds = 120"
PEOPLE = (Person("Ada"), Person("Ben"))
ATTACKS = strangers.ATTACKS | invitations.ATTACKS | operators_tools.ATTACKS


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Run the federation: Ada is there, strangers come, Ben joins, Cleo is invited."""
    everybody = [person.name for person in PEOPLE] + [invitations.INVITED]
    made = Federation(folder, job_text(everybody, rounds=ROUNDS, server=SERVER), PEOPLE, ("--page", "--no-browser"))
    made.make_data(invitations.INVITED)
    with made.running(joined=PEOPLE[:1]):
        yield from strangers.while_running(made, names)
        yield from invitations.while_running(made, names)
        if invitations.INVITED not in made.processes:  # the attack in which they join was not requested
            invitations.invitation(made, "theirs")
            made.join_invited(invitations.INVITED, made.folder / "theirs.invitation")
        yield from operators_tools.while_running(made, names)
        made.join(PEOPLE[1])
        made.wait_for_end()
    yield from operators_tools.afterwards(made, names)


STAGE = Stage("strangers, invitations, commands", ATTACKS, run)
