"""The chain: whatever was changed in a ledger, by whoever, is found; what was not changed is never accused."""

import sqlite3
from dataclasses import astuple, fields, replace
from hashlib import sha256

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.canonical import canonical_bytes
from truthfl.ledger.entry import GENESIS_HASH, KINDS, CheckedItem, Entry, broken_link, entry_after, link_fault

pytestmark = pytest.mark.properties

SALT = "0123456789abcdef" * 2
ALL = [field.name for field in fields(Entry)]
COLUMNS = [name for name in ALL if name != "signature"]  # which the hash does not cover
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | NAMES
PAYLOADS = st.dictionaries(NAMES, PLAIN | st.lists(PLAIN, max_size=3), max_size=3)


@pytest.fixture(scope="module")
def unguarded(tmp_path_factory):
    """A ledger without triggers, and a connection that may do anything to it."""
    path = tmp_path_factory.mktemp("unguarded") / "ledger.db"
    open_ledger(path).close()
    file = sqlite3.connect(path, isolation_level=None)
    for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        file.execute(f"DROP TRIGGER {name}")
    file.execute("PRAGMA synchronous=OFF")
    yield path, file
    file.close()


def chained(drafts, salt=SALT):
    entries = []
    for draft in drafts:
        before = entries[-1] if entries else None
        entries.append(entry_after(before, draft, "2030-01-02T03:04:05.000006+00:00", salt))
    return entries


def book(length=6):
    return chained([CheckedItem("cats", "round", str(n), f'{{"loss":0.{n + 1}}}') for n in range(length)])


@st.composite
def books(draw):
    names = st.tuples(NAMES, st.sampled_from(KINDS), NAMES, PAYLOADS)
    said = draw(st.lists(names, min_size=1, max_size=5, unique_by=lambda one: one[:3]))
    return chained([CheckedItem(job, kind, key, canonical_bytes(payload).decode()) for job, kind, key, payload in said])


@st.composite
def books_with_one_byte_changed(draw):
    """The book, a row, a column, and the bytes of that column with another byte in one place."""
    entries = draw(books())
    row = draw(st.integers(0, len(entries) - 1))
    column = draw(st.sampled_from(COLUMNS))
    raw = str(getattr(entries[row], column)).encode()
    place = draw(st.integers(0, len(raw) - 1))
    byte = draw(st.integers(0, 255).filter(lambda other: other != raw[place]))
    return entries, row, column, raw[:place] + bytes([byte]) + raw[place + 1 :]


def resealed(entries, start):
    """The chain written anew from an entry on, by somebody who knows how."""
    made = entries[:start]
    for entry in entries[start:]:
        draft = CheckedItem(entry.job, entry.kind, entry.key, entry.payload)
        made.append(entry_after(made[-1] if made else None, draft, entry.at, entry.salt))
    return made


@given(books())
def test_what_was_not_changed_is_whole(entries):
    assert broken_link(entries) is None
    assert all(link_fault(entry.link()) is None for entry in entries)
    assert broken_link([]) is None


@given(books_with_one_byte_changed())
def test_any_byte_changed_in_memory_is_found(changed):
    entries, row, column, raw = changed
    text = raw.decode("utf-8", "surrogateescape")
    value = int(raw) if column == "sequence" and text.isdecimal() else text
    broken = [*entries[:row], replace(entries[row], **{column: value}), *entries[row + 1 :]]
    fault = broken_link(broken)
    assert fault is not None
    assert fault.position == row
    assert fault.message.startswith(f"entry {row + 1}: ")


@given(books_with_one_byte_changed())
def test_any_byte_changed_in_a_link_is_found(changed):
    entries, row, column, raw = changed
    assume(column != "salt")  # a link has none
    link = entries[row].link()
    if column == "payload":  # of which the link has the digest
        raw = sha256(bytes.fromhex(SALT) + raw).hexdigest().encode()
    text = raw.decode("utf-8", "surrogateescape")
    link[column] = int(raw) if column == "sequence" and text.isdecimal() else text
    assert link_fault(link) is not None


@given(books_with_one_byte_changed())
def test_any_byte_changed_in_the_file_is_found(unguarded, changed):
    """By somebody who may write to the file and takes the triggers away."""
    entries, row, column, raw = changed
    path, file = unguarded
    file.execute("DELETE FROM entries")
    file.executemany(f"INSERT INTO entries VALUES ({', '.join('?' * len(ALL))})", map(astuple, entries))
    with open_for_reading(path) as ledger:
        assert ledger.rows() == entries
    new = f"CAST(? AS {'INTEGER' if column == 'sequence' else 'TEXT'})"
    done = file.execute(f"UPDATE OR IGNORE entries SET {column} = {new} WHERE sequence = ?", (raw, row + 1))
    assume(done.rowcount == 1)  # otherwise the unique keys refused it
    with open_for_reading(path) as ledger:
        assert broken_link(ledger.rows()) is not None


def test_an_entry_that_was_slipped_in_before_the_first_is_found(unguarded):
    path, file = unguarded
    file.execute("DELETE FROM entries")
    slipped = replace(book(1)[0], sequence=-1, previous="f" * 64, kind="settlement")
    file.execute(f"INSERT INTO entries VALUES ({', '.join('?' * len(ALL))})", astuple(slipped))
    with open_for_reading(path) as ledger:
        assert broken_link(ledger.rows()).position == 0


@pytest.mark.parametrize(
    ("change", "position", "what"),
    [
        (lambda rows: rows.pop(2), 2, "entry 3: its sequence is 4, where 3 comes next; one is missing, added or moved"),
        (lambda rows: rows.pop(0), 0, "entry 1: its sequence is 2, where 1 comes next; one is missing, added or moved"),
        (lambda rows: rows.insert(3, rows[2]), 3, "entry 4: its sequence is 3, where 4 comes next"),
        (lambda rows: rows.reverse(), 0, "entry 1: its sequence is 6, where 1 comes next"),
        (lambda rows: rows.__setitem__(1, replace(rows[1], payload='{"loss":0.9}')), 1, "entry 2: its hash is not the"),
        (
            lambda rows: rows.__setitem__(1, replace(rows[1], payload='{"loss": 0.2}')),
            1,
            "entry 2: its payload is not in",
        ),
        (lambda rows: rows.__setitem__(1, replace(rows[1], payload="[]")), 1, "entry 2: its payload is not a JSON"),
        (lambda rows: rows.__setitem__(1, replace(rows[1], payload="\udc80")), 1, "entry 2: its payload is not text"),
        (lambda rows: rows.__setitem__(1, replace(rows[1], at=None)), 1, "entry 2: its at is not text"),
        (lambda rows: rows.__setitem__(0, replace(rows[0], sequence=True)), 0, "entry 1: its sequence is not a whole"),
        (
            lambda rows: rows.__setitem__(1, replace(rows[1], previous="f" * 64)),
            1,
            "entry 2: it does not hold the hash",
        ),
        (lambda rows: rows.__setitem__(1, replace(rows[1], hash=rows[1].hash.upper())), 1, "entry 2: its hash is not"),
        (lambda rows: rows.__setitem__(1, replace(rows[1], salt=SALT[::-1])), 1, "entry 2: its hash is not the"),
        (lambda rows: rows.__setitem__(1, replace(rows[1], salt=SALT.upper())), 1, "entry 2: its salt is not one"),
        (lambda rows: rows.__setitem__(1, replace(rows[1], salt="")), 1, "entry 2: its salt is not one"),
        (lambda rows: rows.__setitem__(1, replace(rows[1], salt=None)), 1, "entry 2: its salt is not text"),
    ],
)
def test_what_is_wrong_is_said(change, position, what):
    rows = book()
    change(rows)
    fault = broken_link(rows)
    assert fault.position == position
    assert fault.message.startswith(what)


def test_a_payload_that_was_sealed_in_another_form_is_found():
    """The hashes fit; but the same document has two forms, and only one of them is ours."""
    rows = book()
    rows[2] = replace(rows[2], payload='{"loss":0.30}')
    assert broken_link(resealed(rows, 2)).message == "entry 3: its payload is not in canonical form"


def test_a_chain_written_anew_does_not_hold_the_links_of_the_old():
    rows = book()
    forged = list(rows)
    forged[2] = replace(forged[2], payload='{"loss":9.0}')
    forged = resealed(forged, 2)
    assert broken_link(forged) is None
    kept = [entry.link() for entry in rows[3:]]
    assert all(link not in [entry.link() for entry in forged] for link in kept)


@pytest.mark.parametrize(
    ("link", "what"),
    [
        ("link", "it must have the parts sequence, at, job, kind, key, payload, previous, hash and no others"),
        (book()[0].link() | {"more": 1}, "it must have the parts"),
        (book()[0].link() | {"job": {}}, "its job is not text"),
        (book()[0].link() | {"sequence": 1.0}, "its sequence is not a whole number"),
        (book()[0].link() | {"sequence": 0}, "its sequence is 0; it must be at least 1"),
        (book()[3].link() | {"sequence": 1}, "it does not hold the hash of the entry before"),
        (book()[3].link() | {"payload": "0" * 64}, "its hash is not the one of its contents"),
    ],
)
def test_what_is_wrong_with_a_link_is_said(link, what):
    assert link_fault(link).startswith(what)


def test_the_hash_of_the_first_entry_by_hand():
    """So that the form of the hash does not change unseen."""
    entry = book(1)[0]
    inner = sha256(bytes.fromhex(SALT) + b'{"loss":0.1}').hexdigest()
    written = (
        f'{{"at":"2030-01-02T03:04:05.000006+00:00","job":"cats","key":"0","kind":"round","payload":"{inner}",'
        f'"previous":"{"0" * 64}","sequence":1}}'
    )
    assert entry.hash == sha256(written.encode()).hexdigest()
    assert entry.previous == GENESIS_HASH
    assert entry.link() == {name: getattr(entry, name) for name in COLUMNS if name != "salt"} | {"payload": inner}
