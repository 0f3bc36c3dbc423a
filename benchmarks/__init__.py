"""Benchmarks; run one by `python -m benchmarks.NAME [--json]`. Speeds are ratios measured in the same run."""
