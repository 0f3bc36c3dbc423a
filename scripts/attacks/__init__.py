"""The attacks of scripts/attack.py: what attackers do, and whether it was refused, found or of no use to them."""

from attacks import borrowers, false_reports, ledger_stage, lying_operators, open_doors, spoilers, strange_participants

STAGES = (
    false_reports.STAGE,
    strange_participants.STAGE,
    spoilers.STAGE,
    borrowers.STAGE,
    open_doors.STAGE,
    lying_operators.STAGE,
    lying_operators.OTHER_TEST,
    ledger_stage.STAGE,
)
