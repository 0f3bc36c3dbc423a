"""Attackers who can write the ledger's database but lack the operator's key.

They add rows that are correctly chained and signed with another key, to a running job and to a finished one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attacks.finished_job import FinishedJob, command
from attacks.outcomes import Outcome, outcome
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.canonical import canonical_bytes
from truthfl.ledger.entry import CheckedItem, entry_after, new_salt, row_key, row_key_fields
from truthfl.ledger.payments import idempotency_key
from truthfl.ledger.signing import new_key, public_line

STRANGER = new_key()
BY_NOBODY = "did not sign it"


def slip_in(ledger: Path, job: str, kind: str, key: str, document: Mapping[str, Any]) -> None:
    """Add a row after the last one, as truthfl does, signed with a stranger's key."""
    item = CheckedItem(job, kind, key, canonical_bytes(document).decode())
    with closing(sqlite3.connect(ledger, timeout=60, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        with open_for_reading(ledger) as book:
            head = book.head()
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        row = entry_after(head, item, now, new_salt(), row_key(STRANGER))
        database.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(astuple(row)))})", astuple(row))
        database.execute("COMMIT")


def false_payments(job: FinishedJob, attack: str) -> Outcome:
    """Mark Ada's payment as sent and confirmed; then the operator marks, exports and checks."""
    ledger = job.copy(attack)
    due = next(entry for entry in job.entries if (entry.kind, entry.key) == ("payment", "Ada/0"))
    for number, state in enumerate(("sent", "confirmed"), start=1):
        slip_in(ledger, due.job, "payment", f"Ada/{number}", due.document | {"state": state})
    _, exported = command("ledger", "export", ledger, "--format", "json", "--key", job.operator_key)
    states = {one["client"]: one["state"] for one in json.loads(exported[exported.index("[") :])}
    code, said = command("settle", ledger, "--mark", "sent", "--client", "Ada", "--key", job.operator_key)
    checked, told = command("ledger", "check", ledger)
    held = states["Ada"] == "due" and code == 0 and checked == 1 and BY_NOBODY in told
    return outcome(attack, held, f"Ada's stays {states['Ada']}, and can be sent. check: {told}", otherwise=said + told)


def phantom_job(job: FinishedJob, attack: str) -> Outcome:
    """Add a whole job of the writer's own, with a payment due to the writer."""
    ledger, name = job.copy(attack), "phantom-1"
    opening = {"job": {}, "operator_key": public_line(STRANGER), **row_key_fields(STRANGER)}
    slip_in(ledger, name, "job", "job", opening)
    payment = {"client": "Eve", "state": "due", "amount": 10**6, "currency": "EUR", "reference": ""}
    slip_in(ledger, name, "payment", "Eve/0", payment | {"idempotency_key": idempotency_key(name, "Eve")})
    _, exported = command("ledger", "export", ledger, "--key", job.operator_key)
    code, said = command("settle", ledger, "--key", job.operator_key)
    checked, told = command("ledger", "check", ledger)
    held = "Eve" not in exported + said and code == 0 and checked == 1
    return outcome(attack, held, f"export and settle know the operator's jobs alone. check: {told}", otherwise=told)


def opened_by_another(job: FinishedJob, attack: str) -> Outcome:
    """Rewrite all rows as if the job were the stranger's; the operator's commands know the operator's key."""
    ledger = job.copy(attack)
    own = {"operator_key": public_line(STRANGER), **row_key_fields(STRANGER)}
    made = []
    for entry in job.entries:
        document = entry.document | (own if entry.kind == "job" else {})
        if entry.kind == "payment":
            document = document | {"amount": entry.document["amount"] + 100}
        item = CheckedItem(entry.job, entry.kind, entry.key, canonical_bytes(document).decode())
        made.append(entry_after(made[-1] if made else None, item, entry.at, new_salt(), row_key(STRANGER)))
    with closing(sqlite3.connect(ledger, isolation_level=None)) as database:
        triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM entries")
        for row in made:
            database.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(astuple(row)))})", astuple(row))
        for _, sql in triggers:
            database.execute(sql)
    _, exported = command("ledger", "export", ledger, "--key", job.operator_key)
    code, said = command("settle", ledger, "--key", job.operator_key)
    receipt, told = command("ledger", "check", ledger, "--receipt", job.receipt_file("Cleo"))
    held = exported.count("\n") == 1 and code == 2 and "no job of the operator" in said and receipt == 1
    return outcome(attack, held, f"nothing is exported; settle: {said} check: {told}", otherwise=exported + told)


def phantom_row(job: FinishedJob, attack: str) -> Outcome:
    """Add one row of a job that nobody began."""
    ledger = job.copy(attack)
    slip_in(ledger, "nobody's-1", "rejection", "x", {"stage": "round"})
    code, said = command("settle", ledger, "--key", job.operator_key)
    checked, told = command("ledger", "check", ledger)
    held = code == 0 and checked == 1 and "the job itself" in told and "Error" not in told
    return outcome(attack, held, f"the operator's commands go on. check: {told}", otherwise=said + told)


def last_number(job: FinishedJob, attack: str) -> Outcome:
    """Add rows with the largest number and with a negative one, which triggers refuse; then without the triggers."""
    ledger, refused, numbers = job.copy(attack), 0, (2**63 - 1, -5)
    command("ledger", "anchor", ledger, "--key", job.operator_key)
    with closing(sqlite3.connect(ledger, isolation_level=None)) as database:
        triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for guarded in (True, False):
            for number in numbers:
                row = (number, "9999", "x", "x", "x", "{}", f"p{number}", f"h{number}", "0" * 32, "s")
                try:
                    database.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(row))})", row)
                except sqlite3.IntegrityError:
                    refused += 1
            for name, sql in triggers:
                database.execute(f"DROP TRIGGER {name}" if guarded else sql)
    code, said = command("settle", ledger, "--mark", "sent", "--client", "Ada", "--key", job.operator_key)
    exported, text = command("ledger", "export", ledger, "--key", job.operator_key)
    checked, told = command("ledger", "check", ledger)
    held = refused == len(numbers) and code == exported == 0 and checked == 1 and "its sequence is -5" in told
    return outcome(
        attack,
        held,
        f"refused; without the triggers payments are marked and exported all the same. check: {told}",
        otherwise=f"{refused} refused. {said} {text} {told}",
    )


JUDGES: dict[str, tuple[str, Callable[[FinishedJob, str], Outcome]]] = {
    "row-payment-confirmed": ("a writer of the database marks a payment as confirmed", false_payments),
    "row-phantom-job": ("a writer of the database adds a job of their own, with pay", phantom_job),
    "row-phantom": ("a writer of the database adds a row of a job that nobody began", phantom_row),
    "row-last-number": ("a writer of the database adds rows with the largest number, and with -5", last_number),
    "row-all-anew": ("a writer of the database replaces all rows, under a key of their own", opened_by_another),
}
