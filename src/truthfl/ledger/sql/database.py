"""Databases of a ledger: schema, address, SQLite and PostgreSQL, transactions, and error handling.

Rows are only added, and each holds the hash of the row before. No two rows have the same number or the same hash, and a
trigger refuses a row that does not follow the row before. `book` ensures that a job, kind and key have one signed row.
A unique key of the database would let an unsigned row take the place of the real one. Anybody who may write to the file
or owns the database can drop the triggers; `missing_guards` names the missing ones.

Texts for others use `shown_address`, which has no password. A driver's messages never reach the user because they may
quote the address.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from sqlalchemy import (
    URL,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    inspect,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from truthfl.errors import InputError, ServiceError, TruthflError
from truthfl.ledger.entry import GENESIS_HASH

POSTGRESQL = ("postgresql", "postgres")
URL_PREFIXES = ("postgresql:", "postgres:", "postgresql+")


def read_address(where: str | Path) -> Path | URL:
    """The path or URL in this text; an error, without the text, if it is neither."""
    if "\0" in str(where):
        raise InputError("the ledger's name has a null character in it; name a file or a database.")
    if isinstance(where, Path) or ("://" not in where and not where.startswith(URL_PREFIXES)):
        return Path(where)
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):  # the address is not in the message, since it may hold a password
        raise InputError(
            "the ledger's address cannot be read; it must look like postgresql://user@host/database."
        ) from None
    backend = url.get_backend_name()
    if backend in POSTGRESQL:
        return url
    if backend == "sqlite" and url.database not in (None, "", ":memory:") and not url.query:
        return Path(str(url.database))
    raise InputError(f"a ledger of the kind {backend!r} is not kept; name a file or postgresql://user@host/database.")


def shown_address(where: str | Path) -> str:
    """The path, or the URL's host, port and database: no user, password and options."""
    address = read_address(where)
    return shown_url(address) if isinstance(address, URL) else str(address)


def shown_url(url: URL) -> str:
    host, port = url.host or url.query.get("host", ""), f":{url.port}" if url.port else ""
    return f"postgresql://{host}{port}/{url.database or ''}"


def shown_arguments(arguments: list[str]) -> list[str]:
    """Arguments of a command, with ledger addresses in their public form."""
    return [_shown_argument(argument) for argument in arguments]


def _shown_argument(argument: str) -> str:
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    if not value.startswith(URL_PREFIXES):
        return argument
    try:
        return f"{option}{equals}{shown_address(value)}"
    except InputError:
        return f"{option}{equals}postgresql://"


_SQLITE_TRANSIENT = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_SQLITE_WRONG_CONTENTS = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR}
_SQLITE_REASONS = {
    sqlite3.SQLITE_NOTADB: "it is no SQLite file; name a new file, or one that truthfl wrote",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; put a copy of it in its place",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; name a file in a folder that you may write in",
    sqlite3.SQLITE_READONLY: "you may not write to it; name a file and folder that you may write to",
    sqlite3.SQLITE_FULL: "the disk is full",
}
DAMAGED = _SQLITE_REASONS[sqlite3.SQLITE_CORRUPT]

# serialization failure, deadlock, lock not available, too many connections
_BUSY_STATES = {"40001", "40P01", "55P03", "53300"}
_BUSY_WORDS = ("too many clients", "connection slots")
# administrator's shutdown, crash, starting up or shutting down, idle transaction ended
_LEAVING_STATES = {"57P01", "57P02", "57P03", "25P03"}
_LEAVING_WORDS = ("is starting up", "is shutting down", "in recovery mode", "not yet accepting connections")
_CONNECTION_CLASS = "08"
_WRONG_CONTENTS_CLASS = "42"  # missing tables and columns, tables of others, missing rights
_STATE_REASONS = {
    "25006": "it was opened for reading, in a read-only transaction; or its server is a copy that takes no rows",
    "42501": "this user has no right to do that in it; let its owner grant it",
    "42P07": "it already exists with other tables, of another program; name an empty database",
    "53100": "its disk is full",
    "53200": "its server has no memory left",
}
_REFUSALS = {  # texts of a server that answers and refuses the connection; the user can correct this
    "password authentication failed": "the user or the password is not accepted; a password is best in ~/.pgpass",
    "no password supplied": "it asks for a password; write it to ~/.pgpass",
    "authentication failed": "the user is not accepted; check the user in the address",
    "no pg_hba.conf entry": "its server does not admit this user from this machine; see its pg_hba.conf",
    'role "': "its server does not know this user; create the user, or name another",
    'database "': "its server has no such database; create it with createdb, or name another",
}
_NO_ANSWER = {  # texts of a failed connection
    "refused": "nobody listens there; check that PostgreSQL runs and that host and port are right",
    "no such file": "nobody listens there; check that PostgreSQL runs and that the socket's folder is right",
    "resolve host": "there is no machine of that name; check the host and the network",
    "translate host": "there is no machine of that name; check the host and the network",
    "timeout": "it does not answer in time; check host, port and network",
}


def is_lost(error: SQLAlchemyError) -> bool:
    """Whether the database's server cannot be reached, stopped, or ended the connection."""
    if not isinstance(error, DBAPIError) or isinstance(error.orig, sqlite3.Error):
        return False
    state, words = _state(error), str(error.orig)
    if state in _LEAVING_STATES or state.startswith(_CONNECTION_CLASS) or _has(words, _LEAVING_WORDS):
        return True
    if error.connection_invalidated:
        return True
    return _is_of_connecting(error) and not _has(words, _BUSY_WORDS) and _refusal(words) is None


def is_transient(error: SQLAlchemyError) -> bool:
    """Whether a repetition may succeed soon: another writer was first or has the lock, or a server starts up."""
    if isinstance(error, IntegrityError | PoolTimeoutError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_code(error.orig) in _SQLITE_TRANSIENT
    state, words = _state(error), str(error.orig)
    if error.connection_invalidated or state in _BUSY_STATES | _LEAVING_STATES:
        return True
    return _is_of_connecting(error) and _has(words, (*_BUSY_WORDS, *_LEAVING_WORDS))


def unusable(name: str, error: SQLAlchemyError) -> TruthflError:
    """The error to raise for one that is not transient. `name` is the ledger's."""
    kind = InputError if _can_be_mended(error) else ServiceError
    return kind(f"{name} cannot be used as a ledger: {reason(error)}.")


def reason(error: SQLAlchemyError) -> str:
    """Why the database cannot be used, in truthfl's words where possible; SQLite's few messages are kept."""
    if isinstance(error, PoolTimeoutError):
        return "all connections to it are in use"
    if not isinstance(error, DBAPIError):
        return "it does not do as asked"
    if isinstance(error.orig, sqlite3.Error):
        return _SQLITE_REASONS.get(_sqlite_code(error.orig)) or _first_line(str(error.orig))
    state, words = _state(error), str(error.orig)
    if state in _STATE_REASONS:
        return _STATE_REASONS[state]
    if _is_of_connecting(error):
        no_answer = next((text for word, text in _NO_ANSWER.items() if word in words.lower()), None)
        return _refusal(words) or no_answer or "no connection to it can be made"
    if is_lost(error):
        return "its server ended the connection"
    if state in _BUSY_STATES:
        return "others write to it"
    return f"its server refuses with the code {state}" if state else "its server does not do what it is asked"


def _can_be_mended(error: SQLAlchemyError) -> bool:
    """Whether the database can be reached but holds no ledger or refuses this user."""
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_code(error.orig) in _SQLITE_WRONG_CONTENTS
    refused = _is_of_connecting(error) and _refusal(str(error.orig)) is not None
    return refused or _state(error).startswith(_WRONG_CONTENTS_CLASS)


def _is_of_connecting(error: DBAPIError) -> bool:
    """Whether the error is from connecting: libpq gives these errors no code."""
    return error.statement is None and not _state(error)


def _refusal(words: str) -> str | None:
    """Why a server that answers refuses the connection; None if it did not state it."""
    if "FATAL" not in words and "fe_sendauth" not in words:
        return None
    return next((text for said, text in _REFUSALS.items() if said in words), None)


def _has(words: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in words for phrase in phrases)


def _state(error: DBAPIError) -> str:
    """PostgreSQL's error code of five letters; empty if there is none."""
    return str(getattr(error.orig, "sqlstate", None) or "")


def _sqlite_code(error: sqlite3.Error) -> int:
    """The primary result code, without SQLite's extension."""
    extended: int = getattr(error, "sqlite_errorcode", 0)
    return extended & 0xFF


def _first_line(message: str) -> str:
    lines = message.strip().splitlines() or ["the database gives no reason"]
    return lines[0].strip().rstrip(".")


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
    """Create the ledger's tables and triggers if they are missing; safe with several processes at once."""
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
    """Whether there is a ledger in this database; an error if it has another version. `name` is for messages."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return False
    version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if version is not None and version != VERSION:
        raise InputError(f"the ledger {name} is of another truthfl (version {version!r}); use that one.")
    return version is not None


def missing_guards(connection: Connection) -> list[str]:
    """The names of required triggers that are missing or have other contents."""
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


MIN_OUTAGE_PAUSE_S, MAX_OUTAGE_PAUSE_S = 0.1, 5.0
GONE = "the ledger's database does not answer; waiting for it."
BACK = "the ledger's database is back."

Tell = Callable[[str], None]


def tell_on_standard_error(sentence: str) -> None:
    print(f"truthfl: {sentence}", file=sys.stderr, flush=True)


class Outage:
    """The shared state of threads during a database's absence: one of them reports its start, one its end."""

    def __init__(self, tell: Tell = tell_on_standard_error) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._told = False
        self._answered = float("-inf")

    def answered_since(self, moment: float) -> bool:
        """Whether the database has answered any thread since then, by the monotonic clock."""
        return self._answered >= moment

    def wait(self, failures: int) -> None:
        """Pause after this number of failures in a row, from 1; raise `ServiceError` if waiting was stopped.

        The first failure is not reported, because a broken connection can often be restored at once.
        """
        if failures > 1:
            self._say(GONE, missing=True)
        longest = min(MAX_OUTAGE_PAUSE_S, MIN_OUTAGE_PAUSE_S * 2 ** min(failures - 1, 10))
        if self._stopped.wait(random.uniform(longest / 2, longest)):
            raise ServiceError("the ledger's database does not answer, and waiting for it was ended.")

    def over(self) -> None:
        """Note that the database has answered."""
        self._answered = time.monotonic()
        if self._told:
            self._say(BACK, missing=False)

    def stop(self) -> None:
        """End the waiting of all threads, now and later."""
        self._stopped.set()

    def _say(self, sentence: str, *, missing: bool) -> None:
        with self._lock:
            if self._told == missing:
                return
            self._told = missing
        self._tell(sentence)


MAX_ATTEMPTS, MAX_RETRY_S = 100, 60.0
MIN_PAUSE_S, MAX_PAUSE_S = 0.01, 1.0
LOCK_WAIT_S = 10
WRITING = "truthfl_writing"  # execution option of connections that write

Result = TypeVar("Result")


def retry(database: Database, attempt: Callable[[], Result]) -> Result:
    """The result of `attempt`, called again after transient errors; it must be idempotent."""
    deadline = time.monotonic() + MAX_RETRY_S
    for number in range(MAX_ATTEMPTS):
        try:
            return attempt()
        except UnicodeError:  # SQLite's own messages may quote bytes of a damaged file
            raise InputError(f"{database.name} cannot be used as a ledger: {DAMAGED}.") from None
        except SQLAlchemyError as error:
            if not is_transient(error):
                raise unusable(database.name, error) from None
            why = reason(error)
        if time.monotonic() > deadline:
            break
        time.sleep(random.uniform(0.0, min(MAX_PAUSE_S, MIN_PAUSE_S * 2**number)))
    raise ServiceError(f"{database.name} is too busy ({why}); try again later.")


def retry_through_outages(database: Database, attempt: Callable[[], Result]) -> Result:
    """As `retry`, for a database that has answered before: if its server stops, wait until it is back.

    If the connection broke during a commit, the outcome of the transaction is not known. It is repeated like any other,
    because each attempt first reads what is there.
    """
    failures, first = 0, 0.0  # in a row, and when the first of these attempts began

    def attempt_or_lose() -> Result:
        try:
            return attempt()
        except SQLAlchemyError as error:
            if is_lost(error):
                raise _Lost from None
            raise

    while True:
        began = time.monotonic()
        try:
            result = retry(database, attempt_or_lose)
        except _Lost:
            if not failures or database.outage.answered_since(first):  # another thread: it is not absent
                failures, first = 0, began
            failures += 1
            database.outage.wait(failures)
        else:
            database.outage.over()
            return result


class _Lost(Exception):  # noqa: N818 - not an error: the database is waited for
    """The connection to the database broke or could not be made."""


@dataclass(frozen=True)
class Database:
    """An engine and its transactions.

    name      for error messages
    cleanup   called when the database is closed
    outage    whether its server is away, and what reports it
    """

    name: str
    engine: Engine
    cleanup: Callable[[], None] = lambda: None
    outage: Outage = field(default_factory=Outage)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read transaction, with a consistent view of the ledger."""
        with self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """An exclusive write transaction; at the end of the context the data are on the disk."""
        with self.engine.connect() as connection:
            exclusive = connection.execution_options(**{WRITING: True})
            with exclusive.begin():
                yield exclusive

    def close(self) -> None:
        self.outage.stop()
        self.engine.dispose()
        self.cleanup()
