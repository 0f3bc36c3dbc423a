"""The attacks of scripts/attack.py: what attackers do, and whether it was refused, found or of no use to them."""

from attacks import (
    false_reports,
    ledger_stage,
    lying_operators,
    open_doors,
    strange_files,
    strange_participants,
)

STAGES = (
    false_reports.STAGE,
    strange_participants.STAGE,
    open_doors.STAGE,
    lying_operators.STAGE,
    lying_operators.OTHER_TEST,
    ledger_stage.STAGE,
    strange_files.STAGE,
)
