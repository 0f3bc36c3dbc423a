"""The ledger's SQL table, the triggers that forbid changes of rows, and how a database gets them.

Rows are only added, and each holds the hash of the row before. Two unique keys: no two rows have the same number, so
that no two follow the same row, and no row is stored twice (`hash`). A trigger refuses a row that does not hold the
hash of the row with the number before. There is one signed row for a job, kind and key, which `book` sees to: a unique
key of the database would let a row that nobody signed take the place of the real one. Who may write to the file or owns
the database can drop the triggers; `missing_guards` names those that are missing, and `book` knows the rows that are in
their place without them.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, Index, Integer, MetaData, Table, Text, UniqueConstraint, inspect, text

from truthfl.errors import InputError
from truthfl.ledger.database import Database
from truthfl.ledger.entry_kinds import GENESIS_HASH

VERSION = "3"
VERSION_TABLE = "truthfl_ledger_version"

METADATA = MetaData()
ENTRIES = Table(
    "entries",
    METADATA,
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("at", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("previous", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("salt", Text, nullable=False),
    Column("signature", Text, nullable=False),
    Index("entries_by_key", "job", "kind", "key"),
    UniqueConstraint("hash", name="entries_differ"),
)
VERSIONS = Table(VERSION_TABLE, METADATA, Column("version_num", Text, primary_key=True))

REFUSAL = "what is in the ledger stays as it is"
NO_PLACE = "a row of the ledger follows the row before"
FOLLOWS = f"""
    NEW.sequence = 1 AND NEW.previous = '{GENESIS_HASH}'
    OR NEW.sequence > 1
    AND EXISTS (SELECT 1 FROM entries WHERE sequence = NEW.sequence - 1 AND hash = NEW.previous)
"""
SQLITE_TRIGGERS = (
    f"CREATE TRIGGER entries_do_not_change BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END",
    f"CREATE TRIGGER entries_do_not_leave BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END",
    # INSERT OR REPLACE would remove an existing row without calling the trigger above
    f"""
    CREATE TRIGGER entries_are_not_replaced BEFORE INSERT ON entries
    WHEN EXISTS (
        SELECT 1 FROM entries WHERE sequence = NEW.sequence OR hash = NEW.hash
    )
    BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END
    """,
    f"""
    CREATE TRIGGER entries_follow BEFORE INSERT ON entries
    WHEN NOT ({FOLLOWS}) BEGIN SELECT RAISE(ABORT, '{NO_PLACE}'); END
    """,
)
STAYING = f"BEGIN RAISE EXCEPTION '{REFUSAL}'; END"
FOLLOWING = f"BEGIN IF {FOLLOWS} THEN RETURN NEW; END IF; RAISE EXCEPTION '{NO_PLACE}'; END"
POSTGRESQL_GUARDS = {  # by trigger: when it is called, and what it does
    "entries_stay": ({"BEFORE", "UPDATE", "DELETE", "TRUNCATE", "STATEMENT"}, STAYING),
    "entries_follow": ({"BEFORE", "INSERT", "ROW"}, FOLLOWING),
}
POSTGRESQL_TRIGGERS = (
    f"""
    CREATE FUNCTION entries_stay() RETURNS trigger LANGUAGE plpgsql AS
    $$ {STAYING} $$
    """,
    """
    CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION entries_stay()
    """,
    f"""
    CREATE FUNCTION entries_follow() RETURNS trigger LANGUAGE plpgsql AS
    $$ {FOLLOWING} $$
    """,
    """
    CREATE TRIGGER entries_follow BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION entries_follow()
    """,
)
POSTGRESQL_QUERY = """
    SELECT t.tgname, pg_get_triggerdef(t.oid), p.prosrc FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
    WHERE t.tgrelid = 'entries'::regclass AND t.tgenabled IN ('O', 'A')
"""


def create_unless_there(database: Database) -> None:
    """Create the ledger's tables and triggers in a database without them, also with several processes at once."""
    with database.reading() as connection:
        if _has_ledger(connection, database.name):
            return
    with database.writing() as connection:
        if not _has_ledger(connection, database.name):
            for table in METADATA.sorted_tables:
                table.create(connection)
            for trigger in SQLITE_TRIGGERS if connection.dialect.name == "sqlite" else POSTGRESQL_TRIGGERS:
                connection.exec_driver_sql(trigger)
            connection.execute(VERSIONS.insert(), {"version_num": VERSION})


def require_ledger(database: Database) -> None:
    """Raise InputError unless the database holds a ledger; nothing is changed."""
    with database.reading() as connection:
        if not _has_ledger(connection, database.name):
            raise InputError(f"{database.name} holds no ledger; name one that a job wrote.")


def _has_ledger(connection: Connection, name: str) -> bool:
    """Whether there is a ledger in this database; an error if it is of another version. `name` is for messages."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return False
    version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if version is not None and version != VERSION:
        raise InputError(f"the ledger {name} is of another truthfl (version {version!r}); use that one.")
    return version is not None


def missing_guards(connection: Connection) -> list[str]:
    """The names of triggers that the database should have and has not, or has with other contents."""
    is_sqlite = connection.dialect.name == "sqlite"
    return _missing_on_sqlite(connection) if is_sqlite else _missing_on_postgresql(connection)


def _missing_on_sqlite(connection: Connection) -> list[str]:
    query = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'entries'"
    found = {_normal(sql) for (sql,) in connection.execute(text(query))}
    expected = [_normal(sql) for sql in SQLITE_TRIGGERS]
    return [sql.split()[2] for sql in expected if sql not in found]


def _missing_on_postgresql(connection: Connection) -> list[str]:
    missing = dict.fromkeys(POSTGRESQL_GUARDS)
    for name, definition, source in connection.execute(text(POSTGRESQL_QUERY)):
        when, does = POSTGRESQL_GUARDS.get(name, (set[str](), ""))
        words = set(definition.split())
        if does and when <= words and "WHEN" not in words and _normal(source) == _normal(does):
            missing.pop(name, None)
    return list(missing)


def _normal(sql: str) -> str:
    return " ".join(str(sql).split())
