"""The participant's page: offer, labeling, review, receipt. Imports `samples`, `ledger`, `learning`, `mechanism`."""
