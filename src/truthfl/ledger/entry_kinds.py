"""The kinds of entries of a ledger, and what its first entry follows."""

from __future__ import annotations

KINDS = (
    "job",
    "command",
    "admission",
    "enrolment",
    "plan",
    "offer",
    "answer",
    "commitment",
    "hold",
    "audition",
    "start",
    "round",
    "rejection",
    "ended",
    "final",
    "test",
    "settlement",
    "receipt",
    "acknowledgement",
    "payment",
)
GENESIS_HASH = "0" * 64  # `previous` of the first row
