"""Write the operator's commands to the ledger; a row's key is the command's number in the job: "1", "2", …

Imports `book`, `commands`, `documents`, `entry`, `signing`.
"""

from __future__ import annotations

from collections.abc import Callable

from truthfl.errors import ServiceError
from truthfl.ledger.book import Ledger
from truthfl.ledger.commands import Command
from truthfl.ledger.documents import signed
from truthfl.ledger.entry import Conflict, Entry
from truthfl.ledger.signing import PrivateKey

KIND = "command"  # of the ledger's rows
MAX_CONFLICTS = 20


def give_command(ledger: Ledger, job: str, key: PrivateKey, decide: Callable[[], Command]) -> Entry:
    """Sign a command and write it as the job's next; `decide` makes it, again if another one comes first."""
    for _ in range(MAX_CONFLICTS):
        command = decide()
        number = len(ledger.entries(job, KIND)) + 1
        try:
            return ledger.append(job, KIND, str(number), signed(key, command.document()))
        except Conflict:
            continue
    raise ServiceError(f"others give commands to job {job!r} at the same time; try again.")
