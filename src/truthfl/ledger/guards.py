"""Whether a ledger's database still has the triggers that forbid changing and removing rows.

Who may write to the file or owns the database can drop them; a check names those that are missing. What they say stands
in the migration that created them. Imports `migrations`, when called.
"""

from __future__ import annotations

from importlib import import_module

from sqlalchemy import Connection, text

MIGRATION = "truthfl.ledger.migrations.versions.0001_entries"
POSTGRESQL_QUERY = """
    SELECT t.tgname, pg_get_triggerdef(t.oid), p.prosrc FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE t.tgrelid = 'entries'::regclass AND t.tgenabled IN ('O', 'A')
"""


def missing_guards(connection: Connection) -> list[str]:
    """The names of triggers that the database should have and has not, or has with other contents."""
    is_sqlite = connection.dialect.name == "sqlite"
    return _missing_on_sqlite(connection) if is_sqlite else _missing_on_postgresql(connection)


def _missing_on_sqlite(connection: Connection) -> list[str]:
    query = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'entries'"
    found = {_normal(sql) for (sql,) in connection.execute(text(query))}
    expected = [_normal(sql) for sql in import_module(MIGRATION).SQLITE_TRIGGERS]
    return [sql.split()[2] for sql in expected if sql not in found]


def _missing_on_postgresql(connection: Connection) -> list[str]:
    refusal = import_module(MIGRATION).REFUSAL
    for name, definition, source in connection.execute(text(POSTGRESQL_QUERY)):
        words = definition.split()
        forbids = {"BEFORE", "UPDATE", "DELETE", "TRUNCATE", "STATEMENT"} <= set(words) and "WHEN" not in words
        if name == "entries_stay" and forbids and _normal(source) == f"BEGIN RAISE EXCEPTION '{refusal}'; END":
            return []
    return ["entries_stay"]


def _normal(sql: str) -> str:
    return " ".join(str(sql).split())
