"""Attacks on money: payment marks and references, repeated settlement, the password of a PostgreSQL address."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable

from attacks.finished_job import FinishedJob, command
from attacks.outcomes import Outcome, outcome
from truthfl.ledger.book import open_for_reading

PASSWORD = "hunter-2"


def marked_again(job: FinishedJob, attack: str) -> Outcome:
    """Confirm Ada's payment, then mark everybody's as sent under another reference."""
    ledger = job.copy(attack)
    key = ("--key", job.operator_key)
    command("settle", ledger, "--mark", "sent", "--client", "Ada", "--reference", "TX-1", *key)
    command("settle", ledger, "--mark", "confirmed", "--client", "Ada", *key)
    code, _ = command("settle", ledger, "--mark", "sent", "--reference", "TX-2", *key)
    _, said = command("settle", ledger, "--json")
    payments = {one["client"]: one for one in json.loads(said)}
    ada, others = payments["Ada"], {one["state"] for name, one in payments.items() if name != "Ada"}
    held = code == 0 and (ada["state"], ada["reference"], others) == ("confirmed", "TX-1", {"sent"})
    return outcome(attack, held, f"Ada's stays {ada['state']} under {ada['reference']}; the others' become {others}")


def settled_twice(job: FinishedJob, attack: str) -> Outcome:
    ledger = job.copy(attack)
    first = command("ledger", "export", ledger)[1]
    for _ in range(3):
        command("settle", ledger)
    second = command("ledger", "export", ledger)[1]
    keys = first.count("\n") - 1
    return outcome(attack, first == second and keys > 0, f"the same {keys} payments under the same idempotency keys")


def same_run_again(job: FinishedJob, attack: str) -> Outcome:
    """Give the same command after completion."""
    ledger = job.copy(attack)
    code, said = command("run", job.job_file, "--out", ledger.parent)
    with open_for_reading(ledger) as opened:
        same = opened.entries() == job.entries
    return outcome(attack, same, f"exit code {code}; the ledger has the same rows and payments", otherwise=said)


def password(job: FinishedJob, attack: str) -> Outcome:
    """The password in an absent server's address appears in no output and in no file that others can read."""
    address, out = f"postgresql://u:{PASSWORD}@127.0.0.1:1/d?password={PASSWORD}", job.folder.with_name(attack)
    said = [
        command("ledger", "check", address)[1],
        command("settle", address, "--mark", "sent")[1],
        command("run", job.job_file, "--out", out, "--ledger", address)[1],
        command("serve", job.job_file, "--out", out, "--ledger", address, "--yes")[1],
    ]
    files = [path for path in out.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    readable = [path.name for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077]
    held = all(said) and PASSWORD not in "".join(said) and not readable
    return outcome(attack, held, f"in none of {len(said)} outputs, in no readable file; {said[0]}")


JUDGES: dict[str, tuple[str, Callable[[FinishedJob, str], Outcome]]] = {
    "payment-marked-again": ("a confirmed payment is marked as sent again, with all others", marked_again),
    "payment-settled-again": ("the job is settled again and again", settled_twice),
    "payment-second-run": ("the same truthfl run is started again after its end", same_run_again),
    "postgresql-password": ("somebody reads what commands print and write of a PostgreSQL address", password),
}
