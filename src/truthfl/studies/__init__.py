"""Questions answered by many trainings: `reproduce` the paper, `verify` that lying does not pay. Each returns data."""
