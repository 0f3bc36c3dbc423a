"""Data sets, their division among participants, and federations built from settings."""
