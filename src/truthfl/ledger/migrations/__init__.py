"""Alembic migrations of the ledger's table. Imports `schema`."""
