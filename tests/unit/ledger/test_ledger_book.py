"""The ledger: what was written comes back, is there once, and is not changed. On SQLite and on PostgreSQL."""

import json
import re
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from helpers.commands import told
from helpers.databases import KEY, drop_triggers, raw, settlement
from truthfl.errors import InputError
from truthfl.ledger.backup import anchor_fault, make_anchor
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.entry import GENESIS_HASH, KINDS, Conflict, Item
from truthfl.ledger.payments import due_items

LARGEST = 2**63 - 1  # that SQLite stores; on PostgreSQL it is 2**31 - 1


def test_entries_come_back_as_they_were_written(ledger):
    document = {"name": "Zoë", "loss": 0.1, "seeds": [1, 2], "nothing": None, "zero": "\0", "deep": {"b": 1, "a": -0.0}}
    first = ledger.append("cats", "job", "cats", document)
    second = ledger.append("dogs", "offer", "1/Ada", {})
    assert (first.sequence, first.previous, second.sequence, second.previous) == (1, GENESIS_HASH, 2, first.hash)
    assert first.document == document
    assert ledger.entries() == [first, second]
    assert ledger.find("cats", "job", "cats") == first
    assert ledger.find("cats", "job", "dogs") is None
    assert ledger.head() == second
    at = datetime.fromisoformat(first.at)
    assert at.utcoffset() == timedelta(0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", first.at)


def test_entries_of_a_job_of_a_kind_and_behind_another(ledger):
    for number, (job, kind) in enumerate([("b", "job"), ("a", "job"), ("b", "round"), ("a", "round"), ("b", "round")]):
        ledger.append(job, kind, str(number), {})
    assert [entry.sequence for entry in ledger.entries("b")] == [1, 3, 5]
    assert [entry.sequence for entry in ledger.entries(kind="round")] == [3, 4, 5]
    assert [entry.sequence for entry in ledger.entries("b", "round", after=3)] == [5]
    assert ledger.jobs() == ["b", "a"]


def test_an_empty_ledger_has_nothing(ledger):
    assert ledger.entries() == []
    assert ledger.jobs() == []
    assert ledger.head() is None
    assert ledger.append_all([]) == []


def test_the_same_again_is_the_same_entry_and_something_else_a_conflict(ledger):
    first = ledger.append("cats", "test", "loss", {"loss": 0.5, "samples": 10})
    assert ledger.append("cats", "test", "loss", {"samples": 10, "loss": 0.5}) == first
    with pytest.raises(Conflict) as conflict:
        ledger.append("cats", "test", "loss", {"loss": 0.25, "samples": 10})
    assert str(conflict.value) == (
        "the ledger already has test 'loss' of job 'cats', with other contents; what is in it stays as it is."
    )
    assert ledger.entries() == [first]


def test_all_or_nothing_and_what_is_missing_is_added(ledger):
    items = settlement()
    there = ledger.append_all(items[2:4])
    with pytest.raises(Conflict):
        ledger.append_all([*items, Item("cats", "settlement", "client 3", {"pay": 0})])
    assert ledger.entries() == there
    written = ledger.append_all(items)
    assert written[2:4] == there
    assert [entry.unique_key[1:] for entry in written] == [(item.kind, item.key) for item in items]
    assert len(ledger.entries()) == len(items)
    twice = ledger.append_all([Item("dogs", "job", "dogs", {}), Item("dogs", "job", "dogs", {})])
    assert twice[0] == twice[1]
    assert len(ledger.entries("dogs")) == 1


def test_more_items_than_one_question_can_ask_for(ledger):
    items = settlement(clients=800)
    written = ledger.append_all(items)
    assert ledger.append_all(items) == written == ledger.entries()


def test_a_ledger_is_there_again_when_opened_again(where):
    with open_ledger(where, KEY) as ledger:
        written = ledger.append_all(settlement())
    with open_ledger(where, KEY) as ledger:
        assert ledger.entries() == written
        assert ledger.append("cats", "receipt", "Ada", {}).previous == written[-1].hash
    with open_for_reading(where) as ledger:
        assert ledger.rows()[:-1] == written


def test_the_database_itself_refuses_to_change_what_is_there(ledger, where):
    written = ledger.append_all(settlement())
    first = "FROM entries WHERE sequence = 1"
    refused = [
        "UPDATE entries SET payload = '{}' WHERE sequence = 1",
        "DELETE FROM entries WHERE sequence = 2",
        "DELETE FROM entries",
        f"INSERT INTO entries SELECT 99, at, job, kind, 'other', '{{}}', previous, 'a', '', '' {first}",
        *(
            f"INSERT INTO entries SELECT {number}, at, job, kind, 'other', '{{}}', '{before}', 'a', '', '' {first}"
            for number in (-5, 0, len(written) + 2, 2**31 - 1)
            for before in (written[-1].hash, "0" * 64, "b")
        ),
        f"INSERT INTO entries SELECT {len(written) + 1}, at, job, kind, 'other', '{{}}', 'b', 'a', '', '' {first}",
    ]
    if isinstance(where, Path):
        refused += [
            f"REPLACE INTO entries SELECT sequence, at, job, kind, 'other', '{{}}', 'b', 'a', '', '' {first}",
            f"REPLACE INTO entries SELECT 99, at, job, kind, 'other', '{{}}', previous, 'a', '', '' {first}",
            f"REPLACE INTO entries SELECT 99, at, job, kind, 'other', '{{}}', 'b', hash, '', '' {first}",
        ]
    else:
        refused += ["TRUNCATE entries"]
    engine = raw(where)
    for statement in refused:
        with (
            pytest.raises(DBAPIError, match=r"stays as it is|unique|follows the row before"),
            engine.begin() as connection,
        ):
            connection.execute(text(statement))
        assert ledger.entries() == written, statement
    engine.dispose()


@pytest.mark.parametrize("numbers", [(-5,), (LARGEST,), (-5, 0, 50, 51, LARGEST - 1, LARGEST), range(100, 800)])
@pytest.mark.parametrize("begun", [False, True])
def test_rows_out_of_their_place_stop_nothing(ledger, where, numbers, begun):
    """Somebody took the triggers away, and wrote rows of their own, with any number."""
    written = ledger.append_all(settlement()) if begun else []
    if begun:
        anchor = make_anchor(ledger.head(), KEY)
    engine = raw(where)
    with engine.begin() as connection:
        drop_triggers(connection, "entries_follow")
        for number in numbers:
            number = number - LARGEST + 2**31 - 1 if number > 2**31 and not isinstance(where, Path) else number
            before = written[-1].hash if begun else GENESIS_HASH
            values = f"{number}, '9999', 'x', 'x', 'x', '{{}}', '{before}', 'p{number}', 's', 's'"
            connection.execute(text(f"INSERT INTO entries VALUES ({values})"))
    engine.dispose()
    assert ledger.head() == (written[-1] if begun else None)
    more = ledger.append_all([Item("cats", "receipt", name, {}) for name in ("Ada", "Ben")])
    assert [entry.sequence for entry in more] == [len(written) + 1, len(written) + 2]
    assert more[0].previous == (written[-1].hash if begun else GENESIS_HASH)
    assert ledger.head() == more[-1]
    with open_for_reading(where) as reader:
        assert reader.head() == more[-1]
    if begun:
        fault = anchor_fault(anchor, ledger.rows())
        assert fault is None or "no job of the ledger names" in fault
        assert "its last rows are gone" in anchor_fault(anchor, ledger.rows()[: -len(numbers) - len(more) - 1])


@pytest.mark.parametrize(
    ("job", "kind", "key", "payload", "said"),
    [
        ("a", "gift", "a", {}, f"the ledger has no entries of kind 'gift'; the kinds are {', '.join(KINDS)}."),
        ("", "job", "a", {}, "the job of an entry must be a text of 1 to 300 characters."),
        ("a", "job", "a" * 301, {}, "the key of an entry must be a text of 1 to 300 characters."),
        ("a", "job", 7, {}, "the key of an entry must be a text of 1 to 300 characters."),
        ("a\0", "job", "a", {}, r"the job 'a\x00' of an entry has characters that cannot be stored; leave them out."),
        (
            "a",
            "job",
            "\ud800",
            {},
            r"the key '\ud800' of an entry has characters that cannot be stored; leave them out.",
        ),
        ("a", "job", "a", {"x": float("nan")}, "a document cannot be written down: Out of range float values are not"),
        ("a", "job", "a", {10: 1, 9: 2}, "a payload has keys that are not text; all its keys must be."),
        ("a", "job", "a", [1], "a payload is a list; it must be a JSON object."),
    ],
)
def test_what_cannot_be_written_gets_a_sentence(ledger, job, kind, key, payload, said):
    good = Item("a", "job", "good", {})
    assert told(ledger.append_all, [good, Item(job, kind, key, payload)]).startswith(said)
    assert ledger.entries() == []


def test_the_longest_names_fit(ledger):
    longest = "\U0001f600" * 300
    ledger.append(longest, "enrolment", longest, {})
    assert ledger.jobs() == [longest]


def test_payloads_are_canonical_json(ledger):
    entry = ledger.append("a", "job", "a", {"b": [1.0, "ü"], "a": {"d": None, "c": True}})
    assert entry.payload == '{"a":{"c":true,"d":null},"b":[1.0,"ü"]}'
    assert json.loads(entry.payload) == entry.document
    assert issubclass(Conflict, InputError)


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
