"""Alembic's environment: runs the migrations on the connection that `upgrade` passes in. Imports `schema`."""

from __future__ import annotations

from alembic import context

from truthfl.ledger.schema import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
