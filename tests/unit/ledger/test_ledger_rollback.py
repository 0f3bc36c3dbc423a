"""Going back, cutting, writing anew, stripping: what a check finds by itself, and what with a receipt or an anchor."""

import json
import shutil
import sqlite3
from copy import deepcopy
from dataclasses import asdict, replace

import pytest
import typer
from sqlalchemy import text

from helpers.commands import told
from helpers.databases import KEY, raw
from helpers.small_jobs import (
    finished_job,
    known_plans,  # noqa: F401
)
from truthfl.cli.ledger import anchor as anchor_command
from truthfl.cli.ledger import check as check_command
from truthfl.cli.ledger import export as export_command
from truthfl.cli.ledger import settle as settle_command
from truthfl.ledger.backup import anchor_fault, keep_anchor, make_anchor, read_anchors
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.canonical import canonical_bytes
from truthfl.ledger.checking import check, check_receipt
from truthfl.ledger.entry import CheckedItem, entry_after, new_salt, row_key
from truthfl.ledger.signing import new_key, read_key
from truthfl.ledger.sql.database import ENTRIES, SQLITE_TRIGGERS


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return finished_job(tmp_path_factory) / "out"


@pytest.fixture
def folder(finished, tmp_path):
    """The operator's folder after a job, of this test's own."""
    return shutil.copytree(finished, tmp_path / "out")


@pytest.fixture(scope="module")
def entries(finished):
    with open_for_reading(finished / "ledger.db") as book:
        return book.entries()


@pytest.fixture(scope="module")
def receipt(finished):
    return json.loads(next((finished / "participants" / "Cleo" / "receipts").glob("*.json")).read_bytes())


@pytest.fixture(scope="module")
def anchor(finished, entries):
    return make_anchor(entries[-1], read_key(finished / "operator"))


def chained(entries, change=None, without="", time=lambda entry: entry.at):
    """The chain written anew by somebody who knows how, and changes, leaves out or dates some of the entries."""
    made = []
    for entry in entries:
        document = deepcopy(entry.document)
        if entry.kind == without:
            continue
        if change is not None:
            change(document, entry)
        item = CheckedItem(entry.job, entry.kind, entry.key, canonical_bytes(document).decode())
        made.append(entry_after(made[-1] if made else None, item, time(entry), new_salt(), row_key(KEY)))
    return made


def checked(where, capsys, **options):
    """Exit code and output of `truthfl ledger check`."""
    defaults = {"receipt": None, "anchor": None, "model": None, "test": None, "job": None}
    try:
        check_command(str(where), **defaults | options)
    except typer.Exit as ended:
        return ended.exit_code, capsys.readouterr().out
    return 0, capsys.readouterr().out


def mark(where, state, **options):
    defaults = {"job": None, "client": None, "reference": "", "key": None, "json": False}
    settle_command(str(where), mark=state, **defaults | options)


def test_what_was_not_changed_holds(entries, receipt, anchor):
    assert check(entries) is None
    assert check_receipt(receipt, entries) is None
    assert anchor_fault(anchor, entries) is None


def test_a_copy_from_before_a_payment_was_sent_is_found(folder, capsys):
    where, before = folder / "ledger.db", folder / "before.db"
    shutil.copy(where, before)
    mark(where, "sent", reference="TX-1")
    assert f"An anchor was added to {where}.anchors" in capsys.readouterr().out
    code, said = checked(where, capsys)
    assert (code, f"{where}.anchors: the anchor holds." in said) == (0, True)
    shutil.copy(before, where)
    for journal in ("-wal", "-shm"):
        (folder / f"ledger.db{journal}").unlink(missing_ok=True)
    code, said = checked(where, capsys)
    assert code == 1
    assert "its last rows are gone" in said
    assert said.startswith("WRONG: the ledger ends at entry ")
    for command in (mark, lambda where, _: export_command(str(where), None, "csv", None)):
        assert told(command, where, "sent").endswith("its last rows are gone; nothing is paid from it.")


def test_the_command_prints_and_keeps_the_signed_head(folder, capsys):
    where, elsewhere = folder / "ledger.db", folder / "elsewhere" / "anchors"
    for _ in range(2):
        anchor_command(str(where), key=None, out=elsewhere)
        assert json.loads(capsys.readouterr().out)["document"]["kind"] == "anchor"
    assert len(read_anchors(elsewhere)) == 1
    mark(where, "sent")
    anchor_command(str(where), key=folder / "operator", out=elsewhere)
    capsys.readouterr()
    code, said = checked(where, capsys, anchor=elsewhere)
    assert (code, f"{elsewhere}: all 2 anchors hold." in said) == (0, True)


def test_every_cut_is_found_with_an_anchor_and_up_to_a_receipt_with_that(entries, receipt, anchor):
    settled = receipt["document"]["proof"]["last"]
    own = next(entry.sequence for entry in entries if (entry.kind, entry.key) == ("receipt", "Cleo"))
    for length in range(len(entries)):
        assert "its last rows are gone" in anchor_fault(anchor, entries[:length])
    for length in (0, 1, settled // 2, settled - 1):
        assert "its last rows are gone" in check_receipt(receipt, entries[:length])
    for length in (settled, own - 1):
        assert check_receipt(receipt, entries[:length]) == "the ledger has no such receipt"


def test_a_ledger_written_anew_is_found_with_a_receipt_or_an_anchor(entries, receipt, anchor):
    anew = chained(entries, lambda document, entry: document.update(x=1) if entry.kind == "rejection" else None)
    assert "was written anew" in anchor_fault(anchor, anew)
    first = receipt["document"]["proof"]["links"][0]["sequence"]
    assert check_receipt(receipt, anew).startswith(f"entry {first} of the ledger is not the one in the receipt")


def test_other_clients_rows_are_covered_by_a_receipt(entries, receipt):
    """Only Ada's settlement differs, and no row after it was chained anew: by Cleo's links alone nothing would be."""
    changed = list(entries)
    at = next(at for at, entry in enumerate(entries) if (entry.kind, entry.key) == ("settlement", "Ada"))
    changed[at] = replace(entries[at], hash="0" * 64)
    assert entries[at].sequence not in [link["sequence"] for link in receipt["document"]["proof"]["links"]]
    assert "are not those of the receipt; the ledger was written anew" in check_receipt(receipt, changed)


def test_receipts_that_were_stripped_are_missed_and_found_with_a_receipt(entries, receipt, anchor):
    stripped = chained(entries, without="receipt")
    assert check_receipt(receipt, stripped) is not None
    assert anchor_fault(anchor, stripped) is not None
    only_removed = [entry for entry in entries if entry.kind != "receipt"]
    assert check_receipt(receipt, only_removed) == "the ledger has no such receipt"


def test_missing_receipts_are_told(folder, capsys):
    where = folder / "ledger.db"
    with sqlite3.connect(where) as file:
        kept = file.execute("SELECT min(sequence) FROM entries WHERE kind = 'receipt'").fetchone()[0]
        triggers = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            file.execute(f"DROP TRIGGER {name}")
        file.execute("DELETE FROM entries WHERE sequence >= ?", (kept,))
        for _, sql in triggers:
            file.execute(sql)
    file.close()
    code, said = checked(where, capsys)
    assert code == 0
    assert "Ada, Ben, Cleo, Dora got no receipt yet; the server writes them, or they were removed." in said


def test_payments_in_another_currency_are_found(entries):
    def in_lira(document, entry):
        if entry.kind == "payment":
            document["currency"] = "lira"

    fault = check(chained(entries, in_lira, "receipt"))
    assert "payment 'Ada/0'" in fault.message
    assert "its currency is not the EUR of the contract" in fault.message


def test_terms_in_another_currency_are_found(entries):
    def in_lira(document, entry):
        if entry.kind == "payment":
            document["currency"] = "lira"
        if entry.kind == "plan":
            document["terms"]["currency"] = "lira"
        if entry.kind == "offer":
            document["document"]["job"]["currency"] = "lira"

    fault = check(chained(entries, in_lira, "receipt"))
    assert "offer '1/Ada'" in fault.message


def test_clocks_that_run_backwards_are_found(entries):
    times = [entry.at for entry in entries]
    assert times == sorted(times)
    early = chained(entries, time=lambda entry: "1999" + entry.at[4:] if entry.kind == "test" else entry.at)
    assert check(early).message.endswith("its time is before that of the entry before")
    other = chained(entries, time=lambda entry: entry.at[:-6] + "+02:00" if entry.kind == "test" else entry.at)
    assert check(other).message.endswith("its time is not written as truthfl writes it")


def test_a_writer_whose_clock_was_set_back_keeps_the_last_time(ledger, where):
    item = CheckedItem("cats", "job", "job", "{}")
    later = entry_after(None, item, "2999-01-01T00:00:00.000000+00:00", new_salt(), row_key(KEY))
    engine = raw(where)
    with engine.begin() as connection:
        connection.execute(ENTRIES.insert(), [asdict(later)])
    engine.dispose()
    assert ledger.append("cats", "plan", "1", {}).at == later.at


def test_nobody_sets_the_clock_without_the_operators_key(ledger, where):
    item = CheckedItem("cats", "job", "job", "{}")
    engine = raw(where)
    with engine.begin() as connection:
        connection.execute(
            ENTRIES.insert(), [asdict(entry_after(None, item, "2999-01-01T00:00:00.000000+00:00", new_salt()))]
        )
    engine.dispose()
    assert ledger.append("cats", "plan", "1", {}).at < "2999"


def test_an_entry_that_is_there_twice_is_found(entries):
    kept = [entry for entry in entries if entry.kind not in ("receipt", "acknowledgement")]
    assert check(chained([*kept, kept[-1]])).message.endswith("an entry before has the same job, kind and key")


@pytest.mark.parametrize("trigger", [name.split()[2] for name in SQLITE_TRIGGERS])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_dropped_trigger_is_found(file, trigger, replaced):
    with sqlite3.connect(file) as database:
        database.execute(f"DROP TRIGGER {trigger}")
        if replaced:
            database.execute(f"CREATE TRIGGER {trigger} BEFORE UPDATE ON entries BEGIN SELECT 1; END")
    database.close()
    with open_for_reading(file) as ledger:
        assert ledger.missing_guards() == [trigger]


@pytest.mark.parametrize("trigger", ["entries_stay", "entries_follow"])
@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER {} ON entries",
        "ALTER TABLE entries DISABLE TRIGGER {}",
        "CREATE OR REPLACE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
    ],
)
def test_a_dropped_trigger_is_found_on_postgresql(postgresql_database, statement, trigger):
    with open_ledger(postgresql_database) as ledger:
        assert ledger.missing_guards() == []
        engine = raw(postgresql_database)
        with engine.begin() as connection:
            connection.execute(text(statement.format(trigger)))
        engine.dispose()
        assert ledger.missing_guards() == [trigger]


def test_the_command_tells_of_dropped_triggers(folder, capsys):
    with sqlite3.connect(folder / "ledger.db") as database:
        database.execute("DROP TRIGGER entries_do_not_leave")
    database.close()
    code, said = checked(folder / "ledger.db", capsys)
    assert code == 1
    assert said == "WRONG: triggers that forbid changes of rows were removed or changed: entries_do_not_leave.\n"


def test_anchors_that_are_none(folder, entries, anchor, tmp_path):
    file = tmp_path / "anchors"
    foreign = make_anchor(entries[-1], new_key())
    assert anchor_fault(foreign, entries).endswith("is signed with a key that no job of the ledger names")
    keep_anchor(file, anchor)
    changed = deepcopy(anchor)
    changed["document"]["sequence"] -= 1
    for content, what in (
        (json.dumps(changed), f"{file}, line 1 is an anchor whose signature is not of its key; it was changed."),
        ("{}", f"{file}, line 1 is no anchor; truthfl ledger anchor writes them."),
        ("nothing", f"{file}, line 1 is not valid JSON."),
        ("", f"{file} has no anchor in it; truthfl ledger anchor writes them."),
    ):
        file.write_text(content)
        assert told(read_anchors, file) == what
    (folder / "operator").unlink()
    assert told(anchor_command, str(folder / "ledger.db"), None, None) == (
        "there is no key beside the ledger; name the operator's with --key."
    )
    assert told(anchor_command, "postgresql://h/d", file, None) == (
        "the ledger is no file; name the file for its anchors with --out."
    )
