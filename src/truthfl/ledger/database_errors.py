"""What an error of a ledger's database means: whether to try again, to wait, or to tell the user, and in which words.

No message of a driver reaches the user: those of PostgreSQL are in its own language and may quote the address.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from truthfl.errors import InputError, ServiceError, TruthflError

_SQLITE_TRANSIENT = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_SQLITE_WRONG_CONTENTS = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR}
_SQLITE_REASONS = {
    sqlite3.SQLITE_NOTADB: "it is no SQLite file; name a new file, or one that truthfl wrote",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; put a copy of it in its place",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; name a file in a folder that you may write in",
    sqlite3.SQLITE_READONLY: "you may not write to it; name a file, in a folder, that you may write to",
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
_REFUSALS = {  # words of a server that answers and does not let us in: the user can mend it
    "password authentication failed": "the user or the password is not accepted; a password is best in ~/.pgpass",
    "no password supplied": "it asks for a password; write it to ~/.pgpass",
    "authentication failed": "the user is not accepted; see that the address names the right one",
    "no pg_hba.conf entry": "its server lets nobody of this name in from here; its pg_hba.conf says whom",
    'role "': "its server does not know this user; make it, or name another",
    'database "': "its server has no such database; make it with createdb, or name another",
}
_NO_ANSWER = {  # words of a connection that was not made
    "refused": "nobody listens there; see that PostgreSQL runs and that host and port are right",
    "no such file": "nobody listens there; see that PostgreSQL runs and that the socket's folder is right",
    "resolve host": "there is no machine of that name; see that the host is right and the network is there",
    "translate host": "there is no machine of that name; see that the host is right and the network is there",
    "timeout": "it does not answer in time; see that host and port are right and the network is there",
}


def is_lost(error: SQLAlchemyError) -> bool:
    """Whether the database's server cannot be reached, went away, or ended the connection."""
    if not isinstance(error, DBAPIError) or isinstance(error.orig, sqlite3.Error):
        return False
    state, words = _state(error), str(error.orig)
    if state in _LEAVING_STATES or state.startswith(_CONNECTION_CLASS) or _has(words, _LEAVING_WORDS):
        return True
    if error.connection_invalidated:
        return True
    return _is_of_connecting(error) and not _has(words, _BUSY_WORDS) and _refusal(words) is None


def is_transient(error: SQLAlchemyError) -> bool:
    """Whether the same may succeed in a moment: another writer was first or has the lock, a server starts up."""
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
    """The error to raise for one that is not transient. `name` is that of the ledger."""
    kind = InputError if _can_be_mended(error) else ServiceError
    return kind(f"{name} cannot be used as a ledger: {reason(error)}.")


def reason(error: SQLAlchemyError) -> str:
    """Why the database cannot be used, in our own words, except SQLite's, which has few of its own."""
    if isinstance(error, PoolTimeoutError):
        return "all connections to it are in use"
    if not isinstance(error, DBAPIError):
        return "it does not do what it is asked"
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
    """Whether the database can be reached but holds no ledger, or does not let this user in."""
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_code(error.orig) in _SQLITE_WRONG_CONTENTS
    refused = _is_of_connecting(error) and _refusal(str(error.orig)) is not None
    return refused or _state(error).startswith(_WRONG_CONTENTS_CLASS)


def _is_of_connecting(error: DBAPIError) -> bool:
    """Whether it is of making a connection: libpq gives these no code."""
    return error.statement is None and not _state(error)


def _refusal(words: str) -> str | None:
    """Why a server that answers does not let us in; None if it did not say so."""
    if "FATAL" not in words and "fe_sendauth" not in words:
        return None
    return next((text for said, text in _REFUSALS.items() if said in words), None)


def _has(words: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in words for phrase in phrases)


def _state(error: DBAPIError) -> str:
    """The five letters with which PostgreSQL says what an error is; empty if there are none."""
    return str(getattr(error.orig, "sqlstate", None) or "")


def _sqlite_code(error: sqlite3.Error) -> int:
    """The primary result code, without SQLite's extension."""
    extended: int = getattr(error, "sqlite_errorcode", 0)
    return extended & 0xFF


def _first_line(message: str) -> str:
    lines = message.strip().splitlines() or ["the database gives no reason"]
    return lines[0].strip().rstrip(".")
