"""The attacks of scripts/attack.py: what attackers do, and whether it was refused, noticed or useless."""

from attacks import (
    borrowers,
    false_reports,
    hostile_nodes,
    known_batches,
    ledger_stage,
    lying_operators,
    masks,
    open_doors,
    spoiled_means,
    spoilers,
    strange_files,
    strange_participants,
)

STAGES = (
    false_reports.STAGE,
    strange_participants.STAGE,
    spoilers.STAGE,
    spoiled_means.STAGE,
    borrowers.STAGE,
    open_doors.STAGE,
    hostile_nodes.STAGE,
    lying_operators.STAGE,
    lying_operators.OTHER_TEST,
    lying_operators.DENIES,
    masks.STAGE,
    known_batches.STAGE,
    ledger_stage.STAGE,
    strange_files.STAGE,
)
