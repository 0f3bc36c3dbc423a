"""The ledger's table in SQLite and PostgreSQL: addresses, transactions, triggers, and what to do in an outage."""
