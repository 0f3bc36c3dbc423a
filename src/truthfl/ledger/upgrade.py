"""Brings a database to the table this version writes, once, however many open it together. Looks at `database`."""

from __future__ import annotations

import threading

from sqlalchemy import Connection, inspect, text

from truthfl.errors import InputError
from truthfl.ledger.database import Database
from truthfl.ledger.schema import VERSION_TABLE, VERSIONS

_ONE_AT_A_TIME = threading.Lock()  # what Alembic knows of the upgrade under way, it keeps once per process


def upgrade(database: Database) -> None:
    """Writes only where something is to be changed; may be repeated."""
    with database.reading() as connection:
        if _version(connection, database.name) == VERSIONS[-1]:
            return
    with _ONE_AT_A_TIME, database.writing() as connection:
        if _version(connection, database.name) != VERSIONS[-1]:
            _migrate(connection)


def check_version(database: Database) -> None:
    """For readers, who change nothing."""
    with database.reading() as connection:
        found = _version(connection, database.name)
    if found is None:
        raise InputError(f"{database.name} holds no ledger; name one that a job wrote.")
    if found != VERSIONS[-1]:
        raise InputError(f"the ledger {database.name} is of an older truthfl; running a job brings it up to date.")


def _version(connection: Connection, name: str) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if found is not None and found not in VERSIONS:
        raise InputError(f"the ledger {name} is of a newer truthfl (version {found!r}); bring truthfl up to date.")
    return found


def _migrate(connection: Connection) -> None:
    from alembic import command  # a quarter of a second, and hardly ever needed
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "truthfl.ledger:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, VERSIONS[-1])
