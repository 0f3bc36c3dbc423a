"""Tables of the label file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from truthfl.errors import InputError

VERSION = 2  # SQLite keeps it in the file

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS decisions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    nonce  TEXT NOT NULL UNIQUE,
    at     TEXT NOT NULL,
    how    TEXT NOT NULL CHECK (how IN ('page', 'import')),
    sample TEXT NOT NULL,
    action TEXT NOT NULL CHECK (action IN ('label', 'skip', 'flag', 'unflag', 'undo')),
    label  TEXT CHECK ((label IS NOT NULL) = (action = 'label')),
    undoes INTEGER UNIQUE REFERENCES decisions CHECK ((undoes IS NOT NULL) = (action = 'undo')),
    step   TEXT
);
CREATE INDEX IF NOT EXISTS decisions_of_step ON decisions (step) WHERE step IS NOT NULL;
CREATE INDEX IF NOT EXISTS decisions_of_sample ON decisions (sample);
CREATE TRIGGER IF NOT EXISTS no_change BEFORE UPDATE ON decisions
    BEGIN SELECT RAISE(ABORT, 'decisions are only added'); END;
CREATE TRIGGER IF NOT EXISTS no_removal BEFORE DELETE ON decisions
    BEGIN SELECT RAISE(ABORT, 'decisions are only added'); END;
CREATE VIEW IF NOT EXISTS standing AS
    SELECT * FROM decisions AS made WHERE action != 'undo'
    AND NOT EXISTS (SELECT 1 FROM decisions AS undo WHERE undo.undoes = made.number);
CREATE VIEW IF NOT EXISTS labels AS
    SELECT sample, label FROM
        (SELECT sample, label, max(number) FROM standing WHERE action IN ('label', 'skip') GROUP BY sample)
    WHERE label IS NOT NULL;
PRAGMA user_version = {VERSION};
"""


def prepare(database: sqlite3.Connection, path: Path) -> None:
    """Make the tables if there are none; `path` is the file's, for messages."""
    if _is_new(database, path):
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
    database.execute("PRAGMA synchronous = FULL")


def _is_new(database: sqlite3.Connection, path: Path) -> bool:
    """Whether there are no tables; looked up in one transaction, since another process may be creating them."""
    database.execute("BEGIN IMMEDIATE")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    database.execute("ROLLBACK")
    if version not in (0, VERSION) or (version == 0 and tables):
        raise InputError(f"{path} is another program's file, or another version's; name another folder.")
    return not tables
