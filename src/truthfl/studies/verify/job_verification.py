"""Verifies a `DataJob`: plans it and measures the gains from lying under its contract and under other rules.

Imports `job`, `learning.pilot_design`, `rule_tests`, `verdicts`, `verification`, `lie_grid`, `studies.cells` and
`studies.work`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from truthfl.job import DataJob
from truthfl.learning.pilot_design import PilotDesign
from truthfl.studies.cells import FederationSpec
from truthfl.studies.verify.lie_grid import SHORT_GRID
from truthfl.studies.verify.rule_tests import rule_tests
from truthfl.studies.verify.verdicts import Verdict
from truthfl.studies.verify.verification import VerificationDesign, VerificationResult, verify
from truthfl.studies.work import Progress, Store

QUICK_CLIENTS, QUICK_LOOKS = 2, (4, 8)
QUICK_DESIGN = PilotDesign(seeds=4, honest_seeds=16)

StageProgress = Callable[[str, int, int], None]
"""Called with the name of the stage, the number of its tasks that are done, and the number of all (0 if unknown)."""


@dataclass(frozen=True, eq=False)
class JobVerification:
    """The design, the results of each rule test, and the reasons why rules are absent, by name of the rule."""

    design: VerificationDesign
    results: tuple[VerificationResult, ...]
    absent: Mapping[str, str]

    @property
    def verdicts(self) -> list[Verdict]:
        """One per rule, the job's own contract first."""
        return [verdict for result in self.results for verdict in result.verdicts]


def verify_job(
    job: DataJob,
    folder: Path,
    *,
    quick: bool = False,
    seed: int = 0,
    workers: int | None = None,
    progress: StageProgress = lambda *_: None,
) -> JobVerification:
    """Find the best lie of any client under each rule, in real training; results of trainings are stored in the folder.

    quick    two clients, fewer lies and runs
    seed     the first seed; the others are counted from it
    workers  number of processes; by default the number of cores
    """

    def stage_progress(stage: str) -> Progress:
        return lambda done, number: progress(stage, done, number)

    participation = tuple(job.clients.participation.tolist())
    federation = FederationSpec(job.data, job.model, job.clients.dataset_size, participation)
    store = Store(folder / "tasks")
    clients = tuple(range(len(job.clients)))
    sample = clients[:: max(1, len(clients) // QUICK_CLIENTS)][:QUICK_CLIENTS]
    design = VerificationDesign(sample, SHORT_GRID, QUICK_LOOKS) if quick else VerificationDesign(clients)
    design = replace(design, first_seed=seed)
    progress("planning on pilot data", 0, 0)
    plan = job.plan(job.simulated_federation(), QUICK_DESIGN if quick else None)
    tests, absent = rule_tests(federation, plan, store, workers=workers, progress=stage_progress("pricing"))
    results = tuple(
        verify(test, design, store, workers=workers, progress=lambda look: stage_progress(f"training, {look}"))
        for test in tests
    )
    return JobVerification(design, results, absent)
