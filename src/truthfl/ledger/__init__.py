"""What was promised and paid: documents, signatures, an append-only chained book in SQL. Looks at the mechanism."""
