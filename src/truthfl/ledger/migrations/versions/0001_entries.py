"""Create the table of entries and triggers that forbid UPDATE and DELETE."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from truthfl.errors import InputError

revision = "0001"
down_revision = None

REFUSAL = "what is in the ledger stays as it is"
SQLITE_TRIGGERS = (
    f"CREATE TRIGGER entries_do_not_change BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END",
    f"CREATE TRIGGER entries_do_not_leave BEFORE DELETE ON entries BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END",
    # INSERT OR REPLACE would remove an existing row without calling the trigger above
    f"""
    CREATE TRIGGER entries_are_not_replaced BEFORE INSERT ON entries
    WHEN EXISTS (
        SELECT 1 FROM entries WHERE sequence = NEW.sequence OR previous = NEW.previous OR hash = NEW.hash
        OR (job = NEW.job AND kind = NEW.kind AND key = NEW.key)
    )
    BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END
    """,
)
POSTGRESQL_TRIGGERS = (
    f"""
    CREATE FUNCTION entries_stay() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$
    """,
    """
    CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON entries
    FOR EACH STATEMENT EXECUTE FUNCTION entries_stay()
    """,
)


def upgrade() -> None:
    op.create_table(
        "entries",
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.UniqueConstraint("job", "kind", "key", name="entries_said_once"),
        sa.UniqueConstraint("previous", name="entries_do_not_fork"),
        sa.UniqueConstraint("hash", name="entries_differ"),
    )
    for trigger in SQLITE_TRIGGERS if op.get_bind().dialect.name == "sqlite" else POSTGRESQL_TRIGGERS:
        op.execute(trigger)


def downgrade() -> None:
    raise InputError("the ledger keeps what is in it; there is no way back before its first version.")
