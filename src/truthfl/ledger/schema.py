"""The ledger's SQL table. Imports no other module of truthfl.

Rows are only added, and each holds the hash of the row before. Three unique keys: there is one row for a job, kind and
key; no two rows follow the same row (`previous`); no row is stored twice (`hash`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ColumnElement, Integer, MetaData, Table, Text, UniqueConstraint, literal_column

VERSIONS = ("0001", "0002")
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
    Column("salt", Text, nullable=False, server_default=""),
    UniqueConstraint("job", "kind", "key", name="entries_said_once"),
    UniqueConstraint("previous", name="entries_do_not_fork"),
    UniqueConstraint("hash", name="entries_differ"),
)


def readable_columns(version: str) -> list[ColumnElement[Any]]:
    """The columns of a row in a ledger of this version; those that it does not have yet are empty."""
    columns: list[ColumnElement[Any]] = list(ENTRIES.c)
    if version == "0001":
        columns[columns.index(ENTRIES.c.salt)] = literal_column("''").label("salt")
    return columns
