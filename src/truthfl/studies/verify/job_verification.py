"""Verifies a `DataJob`: plans it on several draws of the data, and searches lies under its contract and other rules."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from truthfl.adversary.measure import most_labels
from truthfl.adversary.search import FEWEST_RUNS as FEWEST_SEARCH_RUNS
from truthfl.contracts.contract import Evidence
from truthfl.errors import InputError
from truthfl.job import DataJob
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.solo import possible_recipes
from truthfl.studies.cells import StageProgress
from truthfl.studies.cluster.workers import can_be_planned_elsewhere, planned_by
from truthfl.studies.verify.rule_tests import BOUND_RULES, DrawnPlan, RuleTest, drawn_plans, rule_tests
from truthfl.studies.verify.training import Place
from truthfl.studies.verify.verdicts import Verdict, verdicts_of
from truthfl.studies.verify.verification import SEARCH_SHARE, LieMeasurement, VerificationDesign, measure_lies
from truthfl.studies.work import Progress, Store, WorkerPool, Workers

FEWEST_SPLITS, RUNS_PER_SPLIT = 20, 10
FEWEST_RUNS, MOST_RUNS = 200, 10_000_000
MNIST_PIXELS = 784
SPLITS = 40
SEARCHED_SPLITS = 8
SEED_STEP = 10_000  # between the seeds of a draw and of the clients' samples on it
SHARES_OF_RUNS = {"main": 0.5, "shapley": 0.2, "bound": 0.15}


@dataclass(frozen=True)
class Effort:
    """How much is trained.

    runs   approximate number of training runs of search and measurement
    draws  draws of the data on which the job is planned, including the job's own; the search has one or two of them
    """

    runs: int
    draws: int


EFFORTS = {  # by class of speed and `quick`
    ("fast", False): Effort(20_000, 14),
    ("fast", True): Effort(1_400, 1),
    ("slow", False): Effort(1_600, 1),
    ("slow", True): Effort(400, 1),
}


@dataclass(frozen=True, eq=False)
class JobVerification:
    """The measurement and the verdicts of each rule test.

    absent   reasons why rules are absent, by name of the rule
    draws    number of draws of the data on which the job was planned
    skipped  reasons why other draws of the data could not be planned
    """

    results: tuple[tuple[LieMeasurement, tuple[Verdict, ...]], ...]
    absent: Mapping[str, str]
    draws: int
    skipped: tuple[str, ...]

    @property
    def verdicts(self) -> list[Verdict]:
        """One per rule, the job's own contract first."""
        return [verdict for _, verdicts in self.results for verdict in verdicts]


def verify_job(
    job: DataJob,
    folder: Path,
    *,
    quick: bool = False,
    seed: int = 0,
    runs: int | None = None,
    splits: int | None = None,
    workers: int | Workers | None = None,
    progress: StageProgress = lambda *_: None,
) -> JobVerification:
    """Search the lie that gains most under each rule, and measure it on splits that the search has not seen.

    folder   where results of trainings are stored
    quick    fewer lies and runs, and all splits under the job's own plan
    seed     of the search, the splits and the runs
    runs     approximate number of training runs; by default as many as two cores make in less than ten minutes
    splits   on which the best lies are measured
    workers  number of processes, by default the number of cores; or workers elsewhere
    """
    federated = job.simulated_federation().federated
    samples, recipes = federated.data, possible_recipes(federated.model, federated.data.features)
    runs = _usual_runs(job, quick, samples) if runs is None else runs
    splits = _checked_splits(runs, splits, FEWEST_SPLITS if quick else SPLITS)
    _require_samples(job, len(samples))

    def stage(name: str) -> Progress:
        return lambda done, number: progress(name, done, number)

    store = Store(folder / "tasks")
    with _planning(job, workers, store):
        plans, skipped = drawn_plans(
            job, EFFORTS[speed_class(job, samples), quick].draws, store, seed=seed, progress=stage("planning")
        )
    searched, measured = _places(plans, splits, seed)
    more = most_labels(job.clients.dataset_size, len(samples))
    with contextlib.nullcontext(workers) if isinstance(workers, Workers) else WorkerPool(workers) as pool:
        tests, absent = rule_tests(plans, store, workers=pool, progress=stage("pricing"))
        measurements = [
            measure_lies(
                test,
                VerificationDesign(searched, measured, share, seed, more, test is tests[0] or not quick, recipes),
                store,
                workers=pool,
                progress=stage(f"lies under {test.names[0]}"),
            )
            for test, share in zip(tests, _shares(tests, runs), strict=True)
        ]
    server = job.server
    results = tuple(
        (each, verdicts_of(each, loss_value=server.loss_value, test_samples=server.test_samples))
        for each in measurements
    )
    return JobVerification(results, absent, len(plans), tuple(skipped))


def _planning(job: DataJob, workers: int | Workers | None, store: Store) -> contextlib.AbstractContextManager[None]:
    """The context for planning the job: workers elsewhere, if there are any, compute its trainings."""
    if not isinstance(workers, Workers) or not can_be_planned_elsewhere(job):
        return contextlib.nullcontext()
    return planned_by(workers, store)


def _places(plans: list[DrawnPlan], splits: int, seed: int) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """The splits of the search, and the others, on which its results are measured.

    If there are several draws of the data, no draw is used for both. The search has the job's own draw.
    """

    def place(draw: int, number: int) -> Place:
        return Place(draw, plans[draw].federation.data.seed + SEED_STEP * (number + 1) + 7919 * seed)

    if len(plans) == 1:
        searched = [place(0, number) for number in range(SEARCHED_SPLITS)]
        return tuple(searched), tuple(place(0, SEARCHED_SPLITS + number) for number in range(splits))
    for_search = 2 if len(plans) > 2 else 1
    others = len(plans) - for_search
    searched = [place(k % for_search, k // for_search) for k in range(SEARCHED_SPLITS)]
    return tuple(searched), tuple(place(for_search + k % others, k // others) for k in range(splits))


def _checked_splits(runs: int, splits: int | None, usual: int) -> int:
    """The number of splits for this many runs, the usual one if None; `InputError` if either is out of range."""
    if not FEWEST_RUNS <= runs <= MOST_RUNS:
        raise InputError(
            f"runs is {runs:,}; it must be from {FEWEST_RUNS} to {MOST_RUNS:,}, and a good search needs thousands."
        )
    most = max(FEWEST_SPLITS, runs // RUNS_PER_SPLIT)
    if splits is None:
        return min(usual, most)
    if not FEWEST_SPLITS <= splits <= most:
        raise InputError(
            f"splits is {splits:,}; it must be at least {FEWEST_SPLITS}, because a gain is averaged over them, and at "
            f"most {most:,} for {runs:,} runs."
        )
    return splits


def speed_class(job: DataJob, samples: LabeledSamples) -> str:
    """ "fast" if training is softmax regression on bytes, as of pictures and texts, by compiled code; else "slow"."""
    return "fast" if job.model.kind == "softmax" and samples.features.dtype == np.uint8 else "slow"


def _usual_runs(job: DataJob, quick: bool, samples: LabeledSamples) -> int:
    """The runs of `EFFORTS`; for a network more if pictures are smaller than MNIST's, at most softmax regression's."""
    usual, most = EFFORTS[speed_class(job, samples), quick].runs, EFFORTS["fast", quick].runs
    pixels = samples.features[0].size
    return min(most, max(usual, usual * MNIST_PIXELS // pixels)) if job.model.kind == "cnn" else usual


def _require_samples(job: DataJob, available: int) -> None:
    """Raise `InputError` if a client has more samples than are available to the clients."""
    for name, size in zip(job.clients.name, job.clients.dataset_size, strict=True):
        if size > available:
            raise InputError(
                f"dataset_size of {name} is {size:,}; beside pilot and test data, {job.data.source} has {available:,} "
                "samples for the clients: it must be at most that many."
            )


def _shares(tests: tuple[RuleTest, ...], runs: int) -> list[int]:
    """The runs of each test: half for the rules at the tuned step size, less for Shapley pay and the bounds.

    At least as many as a search needs.
    """
    bounds = {rule.name for rule in BOUND_RULES}
    kinds = ["shapley" if t.needs(Evidence.SHAPLEY) else "bound" if t.names[0] in bounds else "main" for t in tests]
    total = sum(SHARES_OF_RUNS[kind] for kind in kinds)
    fewest = [math.ceil(FEWEST_SEARCH_RUNS * test.runs_per_case / SEARCH_SHARE) + 1 for test in tests]
    return [max(int(runs * SHARES_OF_RUNS[kind] / total), least) for kind, least in zip(kinds, fewest, strict=True)]
