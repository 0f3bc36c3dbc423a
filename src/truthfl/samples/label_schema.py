"""Tables of the label file: made in a new file, and brought up to date in an older one. Imports `errors`.

Version 1 had no `step`; its rows are kept as they are.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from truthfl.errors import InputError

VERSION = 2

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

FROM_VERSION_1 = f"""
ALTER TABLE decisions ADD COLUMN step TEXT;
CREATE INDEX decisions_of_step ON decisions (step) WHERE step IS NOT NULL;
PRAGMA user_version = {VERSION};
"""


def prepare(database: sqlite3.Connection, path: Path) -> None:
    """Make the tables if there are none, or add what an older version lacks; `path` is the file's, for messages."""
    if _version(database, path) == 0:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
    database.execute("PRAGMA synchronous = FULL")
    if _version(database, path) == 1:
        _add_steps(database)


def _add_steps(database: sqlite3.Connection) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        if database.execute("PRAGMA user_version").fetchone()[0] == 1:  # unless another process was first
            for statement in FROM_VERSION_1.strip().split("\n"):
                database.execute(statement)
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _version(database: sqlite3.Connection, path: Path) -> int:
    """The file's version, 0 without tables; in one transaction, since another process may be creating them."""
    database.execute("BEGIN IMMEDIATE")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    tables = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    database.execute("ROLLBACK")
    if not 0 <= version <= VERSION or (version == 0 and tables):
        raise InputError(f"{path} is another program's file, or a newer version's; name another folder.")
    return int(version)
