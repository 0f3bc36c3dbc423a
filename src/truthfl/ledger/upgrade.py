"""Schema migration to the current version, also with several processes at once. Imports `database`, `schema`."""

from __future__ import annotations

import threading

from sqlalchemy import Connection, inspect, text

from truthfl.errors import InputError
from truthfl.ledger.database import Database
from truthfl.ledger.schema import VERSION_TABLE, VERSIONS

_ALEMBIC_LOCK = threading.Lock()  # Alembic has global state


def upgrade(database: Database) -> str:
    """Migrate the database if its version is not the current one; return the current one."""
    with database.reading() as connection:
        if _version(connection, database.name) == VERSIONS[-1]:
            return VERSIONS[-1]
    with _ALEMBIC_LOCK, database.writing() as connection:
        if _version(connection, database.name) != VERSIONS[-1]:
            _migrate(connection)
    return VERSIONS[-1]


def readable_version(database: Database) -> str:
    """The version of the ledger in the database, an error if there is none; nothing is changed."""
    with database.reading() as connection:
        version = _version(connection, database.name)
    if version is None:
        raise InputError(f"{database.name} holds no ledger; name one that a job wrote.")
    return version


def _version(connection: Connection, name: str) -> str | None:
    """Version of the ledger in this database; None if there is none. `name` is for messages."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    if version is not None and version not in VERSIONS:
        raise InputError(f"the ledger {name} is of a newer truthfl (version {version!r}); bring truthfl up to date.")
    return version


def _migrate(connection: Connection) -> None:
    from alembic import command  # imported here since it takes a quarter of a second and is rarely needed
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "truthfl.ledger:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, VERSIONS[-1])
