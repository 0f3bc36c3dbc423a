"""Rows that the job's operator did not sign: they count for nothing, keep nothing real out, and a check names them."""

from dataclasses import asdict, replace

import pytest
import typer

from helpers.commands import told
from helpers.databases import KEY, drop_triggers, opening, raw
from truthfl.cli.ledger import check as check_command
from truthfl.cli.ledger import export as export_command
from truthfl.errors import InputError
from truthfl.federation.operator.job_status import StatusReader
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.checking import check
from truthfl.ledger.entry import (
    CheckedItem,
    Conflict,
    certified_row_key,
    entry_after,
    is_row_signed,
    new_salt,
    row_key,
    row_key_fields,
    row_line,
)
from truthfl.ledger.signing import new_key, public_line, write_key
from truthfl.ledger.sql.database import ENTRIES

STRANGER = new_key()
LATER = "2999-01-01T00:00:00.000000+00:00"


def slip_in(where, kind, key, payload="{}", *, job="cats", signer=None, **columns):
    """Add a well chained row past the ledger's own code; one that is not, without the trigger that refuses it."""
    with open_for_reading(where) as book:
        head = book.head()
    row = entry_after(head, CheckedItem(job, kind, key, payload), LATER, new_salt(), signer and row_key(signer))
    engine = raw(where)
    with engine.begin() as connection:
        if {"sequence", "previous"} & set(columns):
            drop_triggers(connection, "entries_follow")
        connection.execute(ENTRIES.insert(), [asdict(replace(row, **columns))])
    engine.dispose()


@pytest.fixture
def said():
    return []


@pytest.fixture
def book(where, said):
    with open_ledger(where, KEY, said.append) as opened:
        opened.append("cats", "job", "job", opening())
        yield opened


@pytest.mark.parametrize("signer", [None, STRANGER])
@pytest.mark.parametrize("key", ["Ada/1", "x" * 300])
def test_an_unsigned_row_is_not_there_for_those_who_act_on_the_ledger(book, where, said, signer, key):
    slip_in(where, "payment", key, '{"state":"confirmed"}', signer=signer)
    slip_in(where, "payment", f"{key[:200]}2", "no JSON at all", signer=signer)
    assert [entry.kind for entry in book.entries("cats")] == ["job"]
    assert book.find("cats", "payment", key) is None
    assert len(book.rows()) == 3
    real = book.append("cats", "payment", key, {"state": "due"})  # its place is not taken
    assert (real.sequence, book.find("cats", "payment", key)) == (4, real)
    assert real.at < LATER
    assert book.append("cats", "payment", key, {"state": "due"}) == real
    with pytest.raises(Conflict):
        book.append("cats", "payment", key, {"state": "sent"})
    assert len(said) == 1
    assert "is not signed by the job's operator and counts for nothing" in said[0]
    with open_for_reading(where, tell=lambda _: None) as reader:
        assert reader.entries("cats") == book.entries("cats")
        assert StatusReader(reader, "cats").read().unreadable_rows >= 2
        assert check(reader.rows()).message.startswith(f"entry 2, payment {key!r} of job cats: the job's operator did")


@pytest.mark.parametrize(
    "columns",
    [
        {"signature": "zz" * 64},
        {"signature": "0" * 127},
        {"signature": "A" * 128},
        {"hash": "no hash"},
        {"salt": "\x1b[2J"},
        {"previous": "f" * 64},
    ],
)
def test_a_row_with_anything_in_its_columns_stops_nobody(book, where, columns):
    slip_in(where, "round", "1", **columns)
    assert [entry.kind for entry in book.entries()] == ["job"]
    assert book.append("cats", "round", "1", {}).kind == "round"
    assert check(book.rows()).position == 1


def test_a_signed_row_is_not_good_a_second_time_or_elsewhere(book, where):
    book.append("cats", "command", "1", {"kind": "pause"})
    first = book.find("cats", "command", "1")
    slip_in(where, "command", "2", first.payload, salt=first.salt, signature=first.signature)
    slip_in(where, "command", "1", first.payload, salt=first.salt, signature=first.signature)
    slip_in(where, "command", "1", first.payload, job="dogs", salt=first.salt, signature=first.signature)
    assert [entry.sequence for entry in book.entries(kind="command")] == [first.sequence]
    line = row_line(row_key(KEY))
    assert is_row_signed(line, first)
    assert not is_row_signed(line, replace(first, payload="{}"))  # its hash is not that of its columns


def test_nothing_is_written_without_a_key(where):
    with open_ledger(where) as book:
        assert told(book.append, "cats", "job", "job", {}).endswith("without the operator's key; name it with --key.")
        book.sign_with(KEY)
        book.append("cats", "job", "job", opening())
    with open_ledger(where) as book:
        assert book.append("cats", "job", "job", opening()).sequence == 1  # it is there


def test_operators_who_share_a_ledger_see_their_own_jobs(book, where, said):
    with open_ledger(where, STRANGER, said.append) as his:
        his.append("dogs", "job", "job", opening(STRANGER))
        his.append("dogs", "start", "0", {"start": 0, "round": 1, "model": "cd" * 32})
        assert his.jobs() == ["dogs"]
        assert his.entries("cats") == []
    assert book.jobs() == ["cats"]
    assert [entry.job for entry in book.entries()] == ["cats"]
    assert said == []  # there is nothing wrong with the other's rows
    with open_for_reading(where) as everybody:
        assert everybody.jobs() == ["cats", "dogs"]
        assert check(everybody.rows()) is None
    with open_for_reading(where, public_line(STRANGER)) as his:
        assert his.jobs() == ["dogs"]


@pytest.mark.usefixtures("book")
def test_a_job_is_of_who_opened_it_first(where, said):
    slip_in(where, "job", "job", CheckedItem("cats", "job", "job", "{}").payload, signer=STRANGER)
    slip_in(where, "round", "1", signer=STRANGER)
    with open_for_reading(where, tell=said.append) as reader:
        assert [entry.kind for entry in reader.entries("cats")] == ["job"]
    slip_in(where, "job", "job", job="birds", signer=STRANGER)  # which names nobody's key
    with open_for_reading(where, tell=said.append) as reader:
        assert reader.jobs() == ["cats"]
        assert reader.all_jobs() == ["cats", "birds"]


def test_a_row_before_the_first_opens_no_job(tmp_path):
    where = tmp_path / "ledger.db"
    with open_ledger(where, KEY) as book:
        book.append("cats", "job", "job", opening())
    payload = CheckedItem("cats", "job", "job", "{}").payload
    slip_in(where, "job", "job", payload, signer=STRANGER, sequence=-5)
    with open_for_reading(where) as reader:
        assert [entry.sequence for entry in reader.entries("cats")] == [1]


def test_the_row_key_is_certified_by_the_operators_key():
    fields = {"operator_key": public_line(KEY), **row_key_fields(KEY)}
    assert certified_row_key(fields) == row_line(row_key(KEY))
    for wrong in (
        {"operator_key": public_line(STRANGER)},
        {"row_key": row_line(row_key(STRANGER))},
        {"row_key_signature": ""},
        {"row_key": None},
    ):
        assert certified_row_key(fields | wrong) is None


def test_export_needs_the_operators_key_and_knows_their_jobs_alone(tmp_path, capsys):
    where = tmp_path / "ledger.db"
    with open_ledger(where, KEY) as book:
        book.append("cats", "job", "job", opening())
    with open_ledger(where, STRANGER) as his:
        his.append("dogs", "job", "job", opening(STRANGER))
    with pytest.raises(InputError, match="there is no key beside the ledger; name the operator's with --key"):
        export_command(str(where))
    write_key(KEY, tmp_path / "keys" / "mine")
    with pytest.raises(InputError, match=r"job is 'dogs'; .* has cats"):
        export_command(str(where), job="dogs", key=tmp_path / "keys" / "mine.pub")
    write_key(new_key(), tmp_path / "keys" / "other")
    with pytest.raises(InputError, match=r"has no job of the operator whose key is .*other; name theirs with --key"):
        export_command(str(where), key=tmp_path / "keys" / "other")
    export_command(str(where), key=tmp_path / "keys" / "mine.pub")
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_check_of_one_job_counts_its_rows(tmp_path, capsys):
    where = tmp_path / "ledger.db"
    for name, key in (("cats", KEY), ("dogs", STRANGER)):
        with open_ledger(where, key) as book:
            book.append(name, "job", "job", opening(key))
    with open_ledger(where, KEY) as book:
        refusal = {"stage": "enrolment", "round": None, "client": None, "node": "7", "reason": "strange"}
        book.append("cats", "rejection", "x", refusal)
    options = {"receipt": None, "anchor": None, "model": None, "test": None}
    check_command(str(where), job="cats", **options)
    assert capsys.readouterr().out.splitlines()[0] == (
        "2 rows of 1 job: the chain, signatures and pay hold. So do those of other jobs in the ledger, 1 in all."
    )
    check_command(str(where), job=None, **options)
    assert capsys.readouterr().out.startswith("3 rows of 2 jobs: the chain, signatures and pay hold.\n")
    slip_in(where, "rejection", "y", '{"stage":"round"}', job="nobody's")
    with pytest.raises(typer.Exit):
        check_command(str(where), job="cats", **options)
    assert "rejection 'y' of job nobody's: the job itself" in capsys.readouterr().out
