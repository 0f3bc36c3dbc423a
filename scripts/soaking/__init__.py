"""The parts of scripts/soak.py, which runs all kinds of jobs under random kills. Tests use its private PostgreSQL."""
