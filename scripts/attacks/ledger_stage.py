"""The attacks on ledger, money and signed papers, on copies of one finished job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from attacks import changed_ledgers, false_peers, payments, row_writers, second_receipts
from attacks.finished_job import FinishedJob
from attacks.outcomes import Outcome, Stage

JUDGES = changed_ledgers.JUDGES | payments.JUDGES | row_writers.JUDGES | second_receipts.JUDGES | false_peers.JUDGES


def run(folder: Path, names: set[str]) -> Iterator[Outcome]:
    """Make one finished job, and attack copies of it."""
    job = FinishedJob(folder)
    for attack, (_, judge) in JUDGES.items():
        if attack in names:
            yield judge(job, attack)


STAGE = Stage("ledger, money and papers", {name: words for name, (words, _) in JUDGES.items()}, run, short=True)
