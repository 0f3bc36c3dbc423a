"""Does lying pay in a job on data? Plan it, put its contract and others to the test, and keep what was trained.

Imports `job`, `contests`, `verification`, `lie_grid`, `studies.work`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from truthfl.job import DataJob
from truthfl.learning.pilot_design import PilotDesign
from truthfl.studies.cells import Place
from truthfl.studies.verify.contests import contests
from truthfl.studies.verify.lie_grid import SHORT_GRID
from truthfl.studies.verify.verification import Examination, Verdict, Verified, verify
from truthfl.studies.work import Progress, Store

QUICK_CLIENTS, QUICK_LOOKS = 2, (4, 8)
QUICK_DESIGN = PilotDesign(seeds=4, honest_seeds=16)

Watch = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and of how much (0 if unknown)."""


@dataclass(frozen=True, eq=False)
class JobVerification:
    """What was examined, what came out for each training, and why a rule that one might expect is absent."""

    examined: Examination
    verified: tuple[Verified, ...]
    absent: Mapping[str, str]

    @property
    def verdicts(self) -> list[Verdict]:
        """One per rule, the job's own contract first."""
        return [verdict for one in self.verified for verdict in one.verdicts]


def verify_job(
    job: DataJob,
    folder: Path,
    *,
    quick: bool = False,
    seed: int = 0,
    workers: int | None = None,
    watch: Watch = lambda *_: None,
) -> JobVerification:
    """The best lie of any client under each rule, in real training; trainings are kept in the folder.

    quick    two clients, fewer lies and runs
    seed     the first run's; the others follow it
    workers  processes; as many as there are cores unless given
    """

    def told(what: str) -> Progress:
        return lambda done, of: watch(what, done, of)

    participation = tuple(job.clients.participation.tolist())
    place = Place(job.data, job.model, job.clients.dataset_size, participation)
    store = Store(folder / "tasks")
    everybody = tuple(range(len(job.clients)))
    some = everybody[:: max(1, len(everybody) // QUICK_CLIENTS)][:QUICK_CLIENTS]
    examined = Examination(some, SHORT_GRID, QUICK_LOOKS) if quick else Examination(everybody)
    examined = replace(examined, first_seed=seed)
    watch("planning on pilot data", 0, 0)
    plan = job.plan(job.scene(), QUICK_DESIGN if quick else None)
    ways, absent = contests(place, plan, store, workers=workers, progress=told("pricing"))
    verified = tuple(
        verify(way, examined, store, workers=workers, progress=lambda what: told(f"training, {what}")) for way in ways
    )
    return JobVerification(examined, verified, absent)
