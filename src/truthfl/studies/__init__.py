"""Studies with many training runs: `reproduce` (the paper's figures and claims) and `verify` (whether lying pays)."""
