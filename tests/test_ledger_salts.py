"""Salted digests: links tell nothing of payloads, and ledgers and receipts of the first version stay valid."""

import json
import shutil
import sqlite3
from hashlib import sha256
from pathlib import Path

import pytest

from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.checking import check, check_receipt
from truthfl.ledger.payments import due_items

pytest_plugins = ["ledger_fixtures"]

OLD = Path(__file__).parent / "old"
VERSION = "SELECT version_num FROM truthfl_ledger_version"


@pytest.fixture
def old(tmp_path):
    """A ledger of version 0.1."""
    return Path(shutil.copy(OLD / "ledger.db", tmp_path / "old.db"))


def matching_amounts(link, salt=b""):
    """The pay, in cents, whose payment has the digest in this link: what its reader finds by trying all."""
    payloads = {amount: due_items("cats", {"Ada": amount}, "EUR")[0].payload for amount in range(1, 300)}
    texts = {n: json.dumps(one, sort_keys=True, separators=(",", ":")) for n, one in payloads.items()}
    return [amount for amount, text in texts.items() if sha256(salt + text.encode()).hexdigest() == link["payload"]]


def test_pay_is_not_found_from_a_link_by_trying_all_amounts(ledger):
    entry = ledger.append_all(due_items("cats", {"Ada": 123}, "EUR"))[0]
    assert matching_amounts(entry.link()) == []
    assert matching_amounts(entry.link(), bytes.fromhex(entry.salt)) == [123]


def test_every_entry_has_its_own_salt(ledger):
    entries = ledger.append_all(due_items("cats", {f"client {number}": 5 for number in range(50)}, "EUR"))
    assert len({entry.salt for entry in entries}) == 50
    assert ledger.entries() == entries


def test_an_old_ledger_is_read_and_checked_without_a_change(old):
    before = old.read_bytes()
    with open_for_reading(old) as ledger:
        entries = ledger.entries()
        assert ledger.head() == entries[-1]
        assert ledger.find(entries[3].job, entries[3].kind, entries[3].key) == entries[3]
    assert {entry.salt for entry in entries} == {""}
    assert check(entries) is None
    assert check_receipt(json.loads((OLD / "receipt.json").read_bytes()), entries) is None
    assert old.read_bytes() == before
    with sqlite3.connect(old) as database:
        assert database.execute(VERSION).fetchall() == [("0001",)]
    database.close()


def test_an_old_ledger_goes_on_with_salts(old):
    with open_for_reading(old) as ledger:
        before = ledger.entries()
    with open_ledger(old) as ledger:
        new = ledger.append("another", "job", "job", {})
        entries = ledger.entries()
    assert entries == [*before, new]
    assert len(new.salt) == 32
    assert check(entries) is None
    assert check_receipt(json.loads((OLD / "receipt.json").read_bytes()), entries) is None
