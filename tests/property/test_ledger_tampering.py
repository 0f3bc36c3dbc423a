"""Any changed byte in a job's rows, offers, acceptances or receipts is found, and the first wrong row is named."""

import json
import shutil
import sqlite3
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import replace

import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.commands import truthfl
from helpers.databases import KEY, rewritten
from helpers.small_jobs import (
    finished_job,
    known_plans,  # noqa: F401
)
from truthfl.cli import ledger as cli_ledger
from truthfl.errors import TruthflError
from truthfl.ledger.book import open_ledger
from truthfl.ledger.checking import check, check_receipt
from truthfl.ledger.entry import link_hash, row_key, sign_row
from truthfl.ledger.receipts import receipt_fault
from truthfl.ledger.signing import GROUP_ORDER

COLUMNS = ("at", "job", "kind", "key", "payload", "previous", "hash", "salt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return finished_job(tmp_path_factory) / "out"


@pytest.fixture(scope="module")
def entries(folder):
    with open_ledger(folder / "ledger.db") as book:
        return book.entries()


@pytest.fixture(scope="module")
def receipt(folder):
    return next((folder / "participants" / "Cleo" / "receipts").glob("*.json")).read_bytes()


def flipped(text, position, bit):
    raw = bytearray(text.encode() if isinstance(text, str) else text)
    raw[position % len(raw)] ^= 1 << bit
    return raw.decode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(raw)


def test_the_untouched_book_and_receipt_hold(entries, receipt):
    assert check(entries) is None
    assert receipt_fault(json.loads(receipt)) is None
    assert check_receipt(json.loads(receipt), entries) is None


def test_a_receipt_has_the_salts_of_its_own_documents_and_no_others(entries, receipt):
    """So its reader cannot find what others were paid by trying all amounts on the links."""
    document = json.loads(receipt)["document"]
    own = {
        ("offer", "1/Cleo"),
        ("answer", "1/Cleo"),
        ("test", "test"),
        ("settlement", "Cleo"),
        ("commitment", "Cleo"),
        ("final", "Cleo"),
        ("audition", "Cleo"),
    }
    expected = {str(entry.sequence): entry.salt for entry in entries if (entry.kind, entry.key) in own}
    assert document["salts"] == expected
    others = {entry.salt for entry in entries} - set(expected.values())
    assert len(others) > 10
    assert not any(salt in receipt.decode() for salt in others)


@pytest.mark.properties
@settings(deadline=None)
@given(st.data())
def test_a_changed_byte_in_any_row_is_found_and_named(entries, data):
    row = data.draw(st.integers(0, len(entries) - 1), label="row")
    column = data.draw(st.sampled_from(COLUMNS), label="column")
    old = getattr(entries[row], column)
    new = flipped(old, data.draw(st.integers(0, 10_000), label="byte"), data.draw(st.integers(0, 7), label="bit"))
    changed = [*entries[:row], replace(entries[row], **{column: new}), *entries[row + 1 :]]
    fault = check(changed)
    assert fault is not None
    assert fault.position == row


@pytest.mark.properties
@settings(deadline=None)
@given(st.integers(0, 1_000_000), st.integers(0, 7))
def test_a_changed_byte_in_a_receipt_is_found(entries, receipt, position, bit):
    try:
        paper = json.loads(flipped(receipt, position, bit))
    except ValueError:
        return  # no JSON any more: refused before it is looked at
    if paper == json.loads(receipt):
        return  # the same document: 1e-05 may be written 1E-05
    assert not isinstance(paper, dict) or check_receipt(paper, entries) is not None


@pytest.fixture(scope="module")
def file_bytes(folder):
    return (folder / "ledger.db").read_bytes()


@pytest.mark.properties
@settings(deadline=None)
@given(st.one_of(st.integers(0, 4095), st.integers(0, 1_000_000)), st.binary(min_size=1, max_size=8), st.booleans())
def test_whatever_bytes_a_file_has_its_check_ends_with_a_sentence(file_bytes, tmp_path_factory, place, other, cut):
    """The first 4096 bytes are the database's schema: there, messages of SQLite quoted bytes that are no text."""
    path = tmp_path_factory.getbasetemp() / "fuzzed.db"
    place %= len(file_bytes)
    path.write_bytes(file_bytes[:place] + other + (b"" if cut else file_bytes[place + len(other) :]))
    for command, options in (
        (cli_ledger.check, {"receipt": None, "model": None, "test": None, "job": None}),
        (cli_ledger.show, {"job": None, "rows": False, "json": True}),
        (cli_ledger.export, {"out": None, "form": "csv", "job": None}),
    ):
        with suppress(TruthflError, typer.Exit):
            command(str(path), **options)


STRANGE = [None, True, -1, 1e308, 10**400, 1e-320, "", "\u001b[31m", [], {}, ["Ada", "Ada"], 2.0**70]


@pytest.mark.properties
@settings(deadline=None)
@given(st.data())
def test_whatever_a_sealed_row_says_its_check_ends_with_a_sentence(entries, data):
    """By somebody who writes anything and recomputes all hashes behind it."""
    entry = data.draw(st.sampled_from(entries), label="row")
    name = data.draw(st.sampled_from([*entry.document, "another"]), label="part")
    value = data.draw(st.sampled_from([*STRANGE, {name: None}]), label="value")
    fault = check(rewritten(entries, entry.kind, entry.key, lambda document: document.update({name: value})))
    assert fault is None or fault.message.startswith("entry ")


def test_a_row_with_escape_codes_is_shown_without(file_bytes, tmp_path, capsys):
    path = tmp_path / "ledger.db"
    path.write_bytes(file_bytes)
    with sqlite3.connect(path) as database:
        database.execute("DROP TRIGGER entries_do_not_change")
        database.execute("UPDATE entries SET kind = char(27) || '[31mjob', hash = char(27) || hash WHERE sequence = 1")
    database.close()
    with suppress(TruthflError, typer.Exit):
        cli_ledger.show(str(path), job=None, rows=True, json=False)
    with suppress(TruthflError, typer.Exit):
        cli_ledger.check(str(path), receipt=None, model=None, test=None, job=None)
    said = capsys.readouterr().out
    assert "WRONG: entry 1" in said
    assert "\u001b" not in said


def test_rows_of_unknown_kinds_are_named(entries):
    strange = replace(entries[-1], kind="gift")
    own_hash = link_hash(strange.link())
    fault = check([*entries[:-1], replace(strange, hash=own_hash, signature=sign_row(row_key(KEY), own_hash))])
    assert "gift" in fault.message
    assert "it is of no kind that truthfl writes" in fault.message


def more_base(document):
    document["document"]["client"]["pay"]["base"] += 1


def more_pay(document):
    document["pay"] += 1


def less_loss(document):
    document["loss"] -= 0.1


def more_rounds(document):
    document["missing"].remove("Ben")


def other_amount(document):
    document["amount"] += 5


def other_receipt(document):
    document["receipt"] = "00" * 32


def other_secret(document):
    document["secret"] = "00" * 32


@pytest.mark.parametrize(
    ("kind", "key", "change", "named", "what"),
    [
        ("offer", "1/Ada", more_base, "offer '1/Ada'", "its signature is not of the operator's key"),
        ("settlement", "Cleo", more_pay, "settlement 'Cleo'", "recomputed it is"),
        ("test", "test", less_loss, "settlement", "recomputed it is"),
        ("test", "test", other_secret, "test 'test'", "not those committed to"),
        ("round", "2", more_rounds, "settlement 'Ben'", "recomputed it is"),
        ("payment", "Ada/0", other_amount, "payment 'Ada/0'", "the amount is"),
        ("acknowledgement", "Ada", other_receipt, "acknowledgement 'Ada'", "it is of another receipt than theirs"),
        (
            "enrolment",
            "Dora",
            lambda d: d.update(public_key=d["public_key"][:-4] + "AAAA"),
            "offer '1/Dora'",
            "enrolled",
        ),
    ],
)
def test_somebody_who_recomputes_all_hashes_is_found_out_by_what_the_rows_say(entries, kind, key, change, named, what):
    fault = check(rewritten(entries, kind, key, change))
    assert fault is not None
    assert named in fault.message
    assert what in fault.message


def mirrored(document):
    """The other signature that the plain check of ECDSA accepts: (r, n - s)."""
    r, s = decode_dss_signature(b64decode(document["signature"]))
    document["signature"] = b64encode(encode_dss_signature(r, GROUP_ORDER - s)).decode()


@pytest.mark.parametrize(("kind", "key"), [("answer", "1/Ada"), ("receipt", "Ada")])
def test_the_mirrored_signature_is_no_signature(entries, kind, key):
    fault = check(rewritten(entries, kind, key, mirrored))
    assert fault is not None
    assert f"{kind} {key!r}" in fault.message
    assert "signature" in fault.message


def test_the_mirrored_signature_of_a_receipt_is_refused_without_the_ledger(receipt):
    paper = json.loads(receipt)
    mirrored(paper)
    assert "its signature is not of the operator's key" in receipt_fault(paper)


def test_a_book_rewritten_from_the_start_is_found_out_by_the_receipts(entries):
    def later(document):
        document["samples"] += 1

    fault = check(rewritten(entries, "enrolment", "Ada", later))
    assert fault is not None
    assert "receipt 'Ada'" in fault.message


def test_the_command_names_the_first_wrong_row(folder, tmp_path):
    ledger = tmp_path / "ledger.db"
    shutil.copy(folder / "ledger.db", ledger)
    shutil.copytree(folder / "models", tmp_path / "models")
    receipt = next((folder / "participants" / "Ada" / "receipts").glob("*.json"))
    done = truthfl("ledger", "check", ledger, "--receipt", receipt)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "was recomputed" in done.stdout
    assert "the receipt holds" in done.stdout
    with sqlite3.connect(ledger) as database:
        for (trigger,) in database.execute("select name from sqlite_master where type = 'trigger'").fetchall():
            database.execute(f"drop trigger {trigger}")
        row = database.execute("select sequence from entries where kind = 'answer' order by 1 limit 1").fetchone()[0]
        database.execute("update entries set payload = replace(payload, 'accept', 'accepT') where sequence = ?", (row,))
    database.close()
    done = truthfl("ledger", "check", ledger)
    assert done.returncode == 1
    assert done.stdout.startswith(f"WRONG: entry {row}:")
    other = next((tmp_path / "models").glob("*.npy"))
    shutil.copy(folder / "ledger.db", ledger)
    raw = bytearray(other.read_bytes())
    raw[-1] ^= 1
    other.write_bytes(raw)
    done = truthfl("ledger", "check", ledger)
    assert done.returncode == 1
    assert "is not the model that was tested" in done.stdout
