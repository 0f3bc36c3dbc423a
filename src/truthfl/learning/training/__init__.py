"""Rounds of federated training: on the compiled kernel or NumPy, one or many runs at once."""
