"""Where a ledger may be: files and servers, to write and to read; every other place gets a sentence."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from helpers.commands import told
from helpers.databases import KEY, raw
from truthfl.errors import ServiceError
from truthfl.ledger.book import open_for_reading, open_ledger
from truthfl.ledger.sql.database import VERSION_TABLE


def folder_bytes(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")}


def test_reading_changes_nothing(file):
    before = folder_bytes(file.parent)
    with open_for_reading(file) as ledger:
        assert [entry.document["round"] for entry in ledger.rows()] == [0, 1, 2]
        assert "you may not write to it" in told(ledger.append, "a", "job", "a", {}, kind=ServiceError)
    assert folder_bytes(file.parent) == before
    assert list(before) == ["ledger.db"]


def test_reading_beside_a_writer_sees_what_it_writes(file):
    with open_ledger(file, KEY) as writer:
        writer.append("cats", "round", "3", {"round": 3})
        before = folder_bytes(file.parent)
        with open_for_reading(file) as reader:
            assert len(reader.rows()) == 4
            assert folder_bytes(file.parent) == before
            writer.append("cats", "round", "4", {"round": 4})
            assert len(reader.rows()) == 5
            assert "you may not write to it" in told(reader.append, "a", "job", "a", {}, kind=ServiceError)


def test_reading_what_a_crash_left(file, tmp_path):
    """What was committed is there, though it is not in the main file yet."""
    left = tmp_path / "left"
    left.mkdir()
    with open_ledger(file, KEY) as writer:
        writer.append("cats", "round", "3", {"round": 3})
        for suffix in ("", "-wal"):
            shutil.copy(f"{file}{suffix}", left)
    before = folder_bytes(left)
    assert set(before) == {"ledger.db", "ledger.db-wal"}
    with open_for_reading(left / "ledger.db") as reader:
        assert len(reader.rows()) == 4
    assert folder_bytes(left) == before
    assert not (left / "ledger.db-shm").exists()


def test_reading_leaves_no_copy_behind(file, tmp_path, monkeypatch):
    copies = tmp_path / "copies"
    copies.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(copies))
    with open_for_reading(file):
        assert len(list(copies.iterdir())) == 1
    assert list(copies.iterdir()) == []
    (tmp_path / "no ledger").write_text("no ledger" * 100)
    told(open_for_reading, tmp_path / "no ledger")
    assert list(copies.iterdir()) == []


def test_a_reader_on_postgresql_cannot_write(postgresql_database):
    assert "holds no ledger; name one that a job wrote" in told(open_for_reading, postgresql_database)
    open_ledger(postgresql_database, KEY).close()
    with open_for_reading(postgresql_database) as ledger:
        assert "without the operator's key" in told(ledger.append, "a", "job", "a", {})
        with pytest.raises(DBAPIError, match="read-only transaction"), ledger._database.writing() as connection:
            connection.exec_driver_sql("DELETE FROM entries")


def test_places_that_are_no_ledgers(tmp_path):
    text_file, empty = tmp_path / "notes.txt", tmp_path / "empty"
    text_file.write_text("no ledger at all " * 100)
    empty.touch()
    no_sqlite = (
        f"{text_file} cannot be used as a ledger: it is no SQLite file; name a new file, or one that truthfl wrote."
    )
    missing = tmp_path / "missing" / "ledger.db"
    assert told(open_ledger, text_file) == no_sqlite
    assert told(open_for_reading, text_file) == no_sqlite
    assert told(open_for_reading, missing) == f"there is no ledger {missing}; name the file that a job wrote."
    assert told(open_for_reading, empty) == f"{empty} holds no ledger; name one that a job wrote."
    assert told(open_ledger, tmp_path) == f"{tmp_path} is a folder; a ledger is a file."
    assert (
        told(open_ledger, text_file / "x", kind=ServiceError)
        == f"the folder of {text_file / 'x'} cannot be made: File exists."
    )
    assert told(open_ledger, "/proc/no/ledger", kind=ServiceError) == (
        "the folder of /proc/no/ledger cannot be made: No such file or directory."
    )
    assert told(open_ledger, "/proc/ledger", kind=ServiceError) == (
        "/proc/ledger cannot be used as a ledger: it cannot be opened; name a file in a folder that you may write in."
    )
    assert told(open_ledger, "a\0b") == "the ledger's name has a null character in it; name a file or a database."
    assert not missing.parent.exists()
    assert empty.read_bytes() == b""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_we_may_not_write_in(tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert "it cannot be opened" in told(open_ledger, locked / "ledger.db", kind=ServiceError)
    assert told(open_ledger, locked / "new" / "ledger.db", kind=ServiceError).endswith(
        "cannot be made: Permission denied."
    )


def test_addresses_that_are_none(tmp_path):
    kinds = "is not kept; name a file or postgresql://user@host/database."
    assert told(open_ledger, "mysql://u:secret@h/d") == f"a ledger of the kind 'mysql' {kinds}"
    assert told(open_ledger, "sqlite://") == f"a ledger of the kind 'sqlite' {kinds}"
    cannot = "the ledger's address cannot be read; it must look like postgresql://user@host/database."
    assert told(open_ledger, "://secret") == cannot
    assert told(open_ledger, "postgresql://u:secret@h:port/d") == cannot
    with open_ledger(f"sqlite:///{tmp_path}/by address.db", KEY) as ledger:
        assert ledger.name == f"{tmp_path}/by address.db"


def test_a_server_that_is_not_there():
    said = told(open_ledger, "postgresql://u:secret@127.0.0.1:1/d?password=secret", kind=ServiceError)
    assert said == (
        "postgresql://127.0.0.1:1/d cannot be used as a ledger: nobody listens there; check that PostgreSQL runs and "
        "that host and port are right."
    )


def test_a_driver_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert told(open_ledger, "postgresql://u:secret@127.0.0.1/d") == (
        "postgresql://127.0.0.1/d needs a driver that is not installed; pip install 'truthfl[postgresql]' installs it."
    )


def test_a_table_of_somebody_else_is_left_alone(where):
    if isinstance(where, Path):
        where.parent.mkdir()
    engine = raw(where)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE entries (note TEXT)"))
    assert "already exists" in told(open_ledger, where)
    with engine.begin() as connection:
        assert connection.execute(text("SELECT count(note) FROM entries")).scalar() == 0
    engine.dispose()


def test_a_ledger_of_another_version_is_left_alone(where):
    open_ledger(where, KEY).close()
    engine = raw(where)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    engine.dispose()
    for opening in (open_ledger, open_for_reading):
        assert told(opening, where).endswith("is of another truthfl (version '9999'); use that one.")


def test_a_closed_ledger_says_so(file):
    ledger = open_ledger(file, KEY)
    ledger.close()
    ledger.close()
    assert told(ledger.entries) == f"the ledger {file} is closed; open it again."


def test_a_ledger_is_not_handed_to_a_child(file, monkeypatch):
    with open_ledger(file, KEY) as ledger:
        with monkeypatch.context() as as_child:
            as_child.setattr("os.getpid", lambda: -1)
            assert told(ledger.head) == "this ledger was opened by another process; each must open its own."
        assert ledger.head() is not None
