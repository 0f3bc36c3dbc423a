"""Add the salts of payload digests; entries that exist keep theirs unsalted, so that their hashes stay valid."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from truthfl.errors import InputError

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("entries", sa.Column("salt", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    raise InputError("the ledger keeps what is in it; without the salts its hashes could not be checked.")
