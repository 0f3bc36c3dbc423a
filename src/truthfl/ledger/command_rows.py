"""Write the operator's commands to the ledger; a row's key is the command's number in the job: "1", "2", …"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from truthfl.errors import ServiceError
from truthfl.ledger.book import Ledger
from truthfl.ledger.commands import Command, valid_commands
from truthfl.ledger.documents import signed
from truthfl.ledger.entry import Conflict, Entry
from truthfl.ledger.signing import PrivateKey, public_line

KIND = "command"  # of the ledger's rows
MAX_CONFLICTS = 20


def give_command(ledger: Ledger, job: str, key: PrivateKey, decide: Callable[[], Command]) -> Entry:
    """Sign a command and write it as the job's next; `decide` makes it, again if another one comes first."""
    for _ in range(MAX_CONFLICTS):
        command = decide()
        given = valid_commands(ledger.entries(job, KIND), job, public_line(key))
        if given:
            last = given[-1][1]
            command = replace(command, number=last.number + 1, previous=last.digest)
        try:
            return ledger.append(job, KIND, str(command.number), signed(key, command.document()))
        except Conflict:
            continue
    raise ServiceError(f"others give commands to job {job!r} at the same time; try again.")
