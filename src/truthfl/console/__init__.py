"""The operator's page and metrics of one job. Imports `federation`, `page`, `ledger`."""
