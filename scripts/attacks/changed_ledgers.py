"""The operator, or whoever has their disk, against the ledger's payees: rows are changed, removed or rewritten."""

from __future__ import annotations

import random
import shutil
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from attacks.finished_job import FinishedJob, chained_anew, command
from attacks.outcomes import Outcome, not_defended, outcome
from truthfl.ledger.backup import anchor_fault, make_anchor
from truthfl.ledger.book import open_for_reading
from truthfl.ledger.checking import check, check_receipt
from truthfl.ledger.entry import Entry, link_hash, payload_digest
from truthfl.ledger.receipts import merkle_tree
from truthfl.ledger.signing import GROUP_ORDER, read_key

COLUMNS = ("at", "job", "kind", "key", "payload", "previous", "hash", "salt", "signature")
EDITS, FLIPS = 100, 100


def edits(job: FinishedJob, attack: str) -> Outcome:
    """Change bits in random columns of random rows."""
    rng, found = random.Random(0), 0
    for _ in range(EDITS):
        row, column = rng.randrange(len(job.entries)), rng.choice(COLUMNS)
        old = getattr(job.entries[row], column).encode()
        if not old:
            found += 1  # the first row has no previous hash to change
            continue
        new = bytearray(old)
        new[rng.randrange(len(new))] ^= 1 << rng.randrange(7)
        changed = replace(job.entries[row], **{column: new.decode("utf-8", "surrogateescape")})
        fault = check([*job.entries[:row], changed, *job.entries[row + 1 :]])
        found += fault is not None and fault.position == row
    return outcome(attack, found == EDITS, f"check found and named {found} of {EDITS}")


def rollback_with_anchor(job: FinishedJob, attack: str) -> Outcome:
    code, said = _rolled_back(job, attack)
    return outcome(attack, code == 1 and "its last rows are gone" in said, f"check: {said}")


def rollback_without_anchor(job: FinishedJob, attack: str) -> Outcome:
    code, said = _rolled_back(job, attack, forget_anchor=True)
    if code != 0:
        return outcome(attack, True, f"check: {said}")
    return not_defended(
        attack, "check cannot see it, nor a receipt, which is from before; an anchor kept elsewhere can"
    )


def _rolled_back(job: FinishedJob, name: str, *, forget_anchor: bool = False) -> tuple[int, str]:
    """Put back a copy from before the payments were sent; return the check's output."""
    ledger = job.copy(name)
    before = shutil.copy(ledger, ledger.with_suffix(".before"))
    code, said = command("settle", ledger, "--mark", "sent", "--reference", "TX-1", "--key", job.operator_key)
    assert code == 0, said
    shutil.move(before, ledger)
    for journal in ("-wal", "-shm"):
        ledger.with_name(ledger.name + journal).unlink(missing_ok=True)
    if forget_anchor:
        ledger.with_name(ledger.name + ".anchors").unlink()
    return command("ledger", "check", ledger)


def cut(job: FinishedJob, attack: str) -> Outcome:
    """Cut the ledger to every length, against an anchor; at Cleo's settlement, also against Cleo's receipt."""
    anchor, receipt = make_anchor(job.entries[-1], read_key(job.operator_key)), job.receipt("Cleo")
    by_anchor = sum(anchor_fault(anchor, job.entries[:length]) is not None for length in range(len(job.entries)))
    last = receipt["document"]["proof"]["last"]
    by_receipt = sum(check_receipt(receipt, job.entries[:length]) is not None for length in range(last))
    alone = check(job.entries[:last]) is None
    held = by_anchor == len(job.entries) and by_receipt == last
    more = "; check alone does not see a cut at a transaction's end" if alone else ""
    return outcome(attack, held, f"all {by_anchor} cuts found by an anchor, all {by_receipt} by a receipt{more}")


def other_currency(job: FinishedJob, attack: str) -> Outcome:
    def in_lira(document: dict[str, object], entry: object) -> None:
        if getattr(entry, "kind", "") == "payment":
            document["currency"] = "lira"

    fault = check(chained_anew(job.entries, in_lira, without="receipt", key=job.key))
    return outcome(attack, fault is not None, f"check: {fault.message if fault else 'nothing'}")


def written_anew(job: FinishedJob, attack: str) -> Outcome:
    def without_a_reason(document: dict[str, object], entry: object) -> None:
        if getattr(entry, "kind", "") == "enrolment":
            document["samples"] = 1000

    anew = chained_anew(job.entries, without_a_reason, without="receipt", key=job.key)
    anchor = make_anchor(job.entries[-1], read_key(job.operator_key))
    by_receipt, by_anchor = check_receipt(job.receipt("Cleo"), anew), anchor_fault(anchor, anew)
    alone = "check alone does not see it; " if check(anew) is None else ""
    held = by_receipt is not None and by_anchor is not None
    return outcome(attack, held, f"{alone}a receipt: {by_receipt}; an anchor: {by_anchor}")


def stripped_receipts(job: FinishedJob, attack: str) -> Outcome:
    ledger = job.copy(attack)
    with sqlite3.connect(ledger) as database:
        triggers = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DELETE FROM entries WHERE kind IN ('receipt', 'acknowledgement')")
        for _, sql in triggers:
            database.execute(sql)
    database.close()
    _, told = command("ledger", "check", ledger)
    code, said = command("ledger", "check", ledger, "--receipt", job.receipt_file("Cleo"))
    held = "got no receipt yet" in told and code == 1
    return outcome(attack, held, f"check tells who got none; with Cleo's: {said}")


def dropped_triggers(job: FinishedJob, attack: str) -> Outcome:
    ledger = job.copy(attack)
    with sqlite3.connect(ledger) as database:
        database.execute("DROP TRIGGER entries_do_not_change")
    database.close()
    code, said = command("ledger", "check", ledger)
    return outcome(attack, code == 1 and "triggers" in said, f"check: {said}")


def clock_set_back(job: FinishedJob, attack: str) -> Outcome:
    early = chained_anew(
        job.entries,
        time=lambda entry: "1999" + entry.at[4:] if entry.kind == "test" else entry.at,
        without="receipt",
        key=job.key,
    )
    fault = check(early)
    return outcome(attack, fault is not None, f"check: {fault.message if fault else 'nothing'}")


def random_bytes(job: FinishedJob, attack: str) -> Outcome:
    """Change bytes of the file: each check ends with a sentence and an exit code, or finds no fault."""
    rng, content, path = random.Random(1), job.ledger.read_bytes(), job.folder.with_name("bytes.db")
    ends: dict[int, int] = {}
    for number in range(FLIPS):
        place = rng.randrange(4096 if number % 2 else len(content))
        path.write_bytes(content[:place] + rng.randbytes(4) + content[place + 4 :])
        try:
            code, said = command("ledger", "check", path)
        except Exception as error:  # what must not happen
            return outcome(attack, False, f"a traceback: {type(error).__name__}: {error}")
        if "Traceback" in said or (code == 0 and _entries(path) != job.entries):
            return outcome(attack, False, f"a traceback, or other rows that pass: {said[-200:]}")
        ends[code] = ends.get(code, 0) + 1
    same = ends.pop(0, 0)
    return outcome(attack, True, f"{FLIPS} files: {sum(ends.values())} refused in words, in {same} no row is changed")


def _entries(path: Path) -> list[Entry]:
    with open_for_reading(path) as ledger:
        return ledger.entries()


def mirrored_signature(job: FinishedJob, attack: str) -> Outcome:
    def mirror(document: dict[str, object], entry: object) -> None:
        if getattr(entry, "kind", "") == "answer":
            r, s = decode_dss_signature(b64decode(str(document["signature"])))
            document["signature"] = b64encode(encode_dss_signature(r, GROUP_ORDER - s)).decode()

    fault = check(chained_anew(job.entries, mirror, without="receipt", key=job.key))
    return outcome(
        attack, fault is not None and "signature" in fault.message, f"check: {fault.message if fault else ''}"
    )


def guessed_pay(job: FinishedJob, attack: str) -> Outcome:
    """Cleo guesses Ada's row of pay exactly, and tries to confirm it by the hashes in Cleo's own receipt."""
    ada = next(entry for entry in job.entries if (entry.kind, entry.key) == ("settlement", "Ada"))
    receipt = job.receipt_file("Cleo").read_text(encoding="utf-8")
    hashes = {sibling for path in job.receipt("Cleo")["document"]["proof"]["paths"] for sibling in path}

    def leaf(salt: str) -> str:
        guess = ada.link() | {"payload": payload_digest(ada.payload, salt)}
        return merkle_tree([bytes.fromhex(link_hash(guess))]).root.hex()

    hidden = not any(secret in receipt for secret in (ada.salt, ada.hash, payload_digest(ada.payload, ada.salt)))
    confirmed = leaf("") in hashes
    seen = leaf(ada.salt) in hashes
    return outcome(
        attack,
        hidden and not confirmed,
        f"the hash of that row is {'' if seen else 'not '}in the proof; without its salt the right guess fits nothing",
    )


JUDGES: dict[str, tuple[str, Callable[[FinishedJob, str], Outcome]]] = {
    "ledger-edits": ("bits of any column of any row are changed", edits),
    "ledger-rollback": ("a copy from before the payments were sent is put back", rollback_with_anchor),
    "ledger-rollback-without-anchor": ("the same, and the operator removes the anchor", rollback_without_anchor),
    "ledger-cut": ("the last rows are cut off", cut),
    "ledger-other-currency": ("all is chained anew, with payments in another currency", other_currency),
    "ledger-written-anew": ("all is chained anew, with other enrolments", written_anew),
    "ledger-stripped-receipts": ("the rows of receipts are removed", stripped_receipts),
    "ledger-dropped-triggers": ("a trigger that forbids changes is dropped", dropped_triggers),
    "ledger-clock": ("a row is dated back", clock_set_back),
    "ledger-random-bytes": ("the file has other bytes in random places", random_bytes),
    "ledger-mirrored-signature": ("an acceptance gets the signature (r, n - s)", mirrored_signature),
    "receipt-guess": ("a participant tries what others were paid on the links in their receipt", guessed_pay),
}
