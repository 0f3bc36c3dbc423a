"""How fast, as ratios measured in one run. `python -m benchmarks.NAME [--json]`."""
