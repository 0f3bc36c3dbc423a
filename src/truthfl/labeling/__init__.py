"""The participant's own page: offer, labeling, receipt. Looks at `learning`, `ledger`, `mechanism` and `errors`."""
