"""The parts of scripts/soak.py, which runs jobs of all kinds under random kills. Tests use its private PostgreSQL."""
