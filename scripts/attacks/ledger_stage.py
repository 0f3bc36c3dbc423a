"""The attacks on ledger and money, on copies of one finished job. Imports `changed_ledgers`, `payments`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attacks import changed_ledgers, payments
from attacks.finished_job import FinishedJob
from attacks.outcomes import Outcome, Stage

JUDGES = changed_ledgers.JUDGES | payments.JUDGES


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Make one finished job, and attack copies of it."""
    job = FinishedJob(folder)
    for attack, (_, judge) in JUDGES.items():
        if attack in names:
            yield judge(job, attack)


STAGE = Stage("ledger and money", {name: words for name, (words, _) in JUDGES.items()}, run, short=True)
