"""Studies with many training runs: `reproduce` (the paper's figures and claims), `verify` (whether lying pays), `size`
(how incentives change with the number of clients)."""
