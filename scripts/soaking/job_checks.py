"""Checks a finished job: one settlement, payment and receipt per contract, all rounds, all commands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.soaking.processes import Failed
from scripts.soaking.world import REFUSED, Activity, World, command, until

from truthfl.home import participant_folder
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.job_view import JobView, job_view
from truthfl.ledger.signing import read_key
from truthfl.page.receipt_check import own_receipt_fault

FAILED, INTERRUPTED = 1, 130
OPERATORS = ("keys", "served", "out")  # folders with the operator's key


@dataclass(frozen=True)
class JobPapers:
    """A job, and its participants' homes and keys by name."""

    job: str
    people: Mapping[str, tuple[Path, Path]]


def check_job(
    world: World, papers: JobPapers, folder: Path, left_with: Mapping[str, int | None] | None = None
) -> Activity[None]:
    """Check a finished job, and pay for it.

    left_with   the exit codes of participants' commands, by name
    """
    yield from until(lambda: world.database.is_up, "PostgreSQL")
    if papers.job in world.names:
        raise Failed(f"{papers.job} was done before: a job that was resumed is another one")
    world.names.add(papers.job)
    view = _view(world, papers.job)
    for fault in (*row_faults(view), *_command_faults(world, view)):
        raise Failed(f"job {papers.job}: {fault}")
    contract = [] if view.agreement is None else [offer.client.name for offer in view.agreement.offers]
    for name in contract:
        yield from _receipt(world, papers, name, folder)
    for name, code in (left_with or {}).items():
        allowed = (0, -2, INTERRUPTED) if name in contract else (0, FAILED, -2, INTERRUPTED)
        if code not in allowed:
            raise Failed(f"{name} of job {papers.job} left with {code}; {folder / f'{name}.log'} says why")
    if contract:
        yield from _pay(world, papers.job, folder)


def row_faults(view: JobView) -> list[str]:
    """What is missing, or there too often, in a finished job."""
    if view.agreement is None:
        return [] if view.ended is not None else ["it has no contract, and was not ended"]
    contract = sorted(offer.client.name for offer in view.agreement.offers)
    faults = []
    for kind, found in (("settlement", view.settlements), ("receipt", view.receipts)):
        if sorted(found) != contract:
            faults.append(f"{contract} have a contract, {sorted(found)} a {kind}")
    due = Counter(entry.document["client"] for entry in view.payments if entry.key.endswith("/0"))
    if due != Counter(contract):
        faults.append(f"payments fell due for {dict(due)}, and {contract} have a contract")
    rounds = [int(entry.key) for entry in view.rounds]
    asked = view.agreement.terms.rounds if view.taking_part is not None and view.taking_part.offers else 0
    if rounds != list(range(1, len(rounds) + 1)) or (view.ended is None and len(rounds) != asked):
        faults.append(f"its rounds are {rounds}; the contract has {asked}")
    if view.test is None:
        faults.append("it was not tested")
    return faults


def _command_faults(world: World, view: JobView) -> list[str]:
    """Commands that were reported as written but are not in the ledger."""
    there = Counter(command.kind for _, command in view.valid_commands)
    given = {kind: count for (job, kind), count in world.acknowledged.items() if job == view.name}
    return [
        f"{kind} was reported as written {count} times, {there[kind]} are there"
        for kind, count in given.items()
        if there[kind] < count
    ]


def _receipt(world: World, papers: JobPapers, name: str, folder: Path) -> Activity[None]:
    """Check that the receipt is in the participant's home and holds; write a missing one again from the ledger."""
    home, key = papers.people[name]
    file = home / "receipts" / f"{papers.job}.json"
    words = ("ledger", "receipt", world.database.address, "--client", name, "--job", papers.job, "--out")
    if not participant_folder.receipt_files(home, papers.job):
        file.parent.mkdir(parents=True, exist_ok=True)
        yield from command(world, f"receipt-{name}", folder, *words, file)
    found = participant_folder.receipt_files(home, papers.job)
    if len(found) != 1:
        raise Failed(f"{name} has {len(found)} receipts of job {papers.job}")
    receipt = json.loads(found[0].read_bytes())
    fault = own_receipt_fault(home, receipt, read_key(key))
    if fault is not None:
        raise Failed(f"the receipt of {name} in job {papers.job} does not hold: {fault}")
    world.receipts += 1
    kept = world.folder / "receipts"
    kept.mkdir(exist_ok=True)
    (kept / f"{papers.job} {name}.json").write_bytes(found[0].read_bytes())


def _pay(world: World, job: str, folder: Path) -> Activity[None]:
    """Mark all payments as sent, twice, as an operator who is unsure whether the first time worked."""
    key = next(path for place in OPERATORS if (path := folder / place / "operator").is_file())
    for again in range(2):
        words = ("settle", world.database.address, "--job", job, "--mark", "sent", "--reference", f"TX-{job}")
        words += ("--key", str(key))
        yield from command(world, f"settle-{again}", folder, *words, accepted=(0, REFUSED))  # nobody is owed any more
    yield from until(lambda: world.database.is_up, "PostgreSQL")
    view = _view(world, job)
    steps = Counter((entry.document["client"], entry.document["state"]) for entry in view.payments)
    paid = {client for client, state in steps if state == "sent"}
    owed = {name for name, entry in view.settlements.items() if entry.document["pay"] > 0}
    if paid != owed or max(steps.values(), default=1) > 1:
        raise Failed(f"job {job} owes {sorted(owed)}, and its payments are {dict(steps)}")


def _view(world: World, job: str) -> JobView:
    with open_for_reading(world.database.address, tell=lambda _: None) as ledger:
        return job_view(job, ledger.entries(job))
