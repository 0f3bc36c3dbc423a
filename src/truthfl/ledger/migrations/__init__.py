"""How the ledger's table came to be, step by step, for Alembic. Looks at `schema`."""
