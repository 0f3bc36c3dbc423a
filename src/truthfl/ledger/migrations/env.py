"""What Alembic runs to make the steps: on the connection, in the transaction, that `upgrade` hands over."""

from __future__ import annotations

from alembic import context

from truthfl.ledger.schema import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
