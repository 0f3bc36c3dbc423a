"""Cells: settings of a federation and its clients' strategies, trained with many seeds, in stages with progress.

Work items call `train_cell`, `tune_step` and `sample_gradients` with JSON values and get named arrays. Their
`federation` is the document of a `FederationSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truthfl.contracts.setting import Strategies, Training
from truthfl.learning.data.federations import (
    Data,
    ModelChoice,
    SimulatedFederation,
    build_federation,
)
from truthfl.learning.data.partition import Federated
from truthfl.learning.data.samples import LabeledSamples
from truthfl.learning.people.labels import ask_for_labels
from truthfl.learning.pilot.constants import measure_gradients
from truthfl.learning.pilot.pilot_clients import PILOT_SEED
from truthfl.learning.pilot.step_size import find_step_size
from truthfl.learning.tasks.task_choice import PICTURES, TaskChoice
from truthfl.learning.training.aggregation import MEAN, ReportRule, aggregation_document, aggregation_of
from truthfl.learning.training.train import train
from truthfl.studies.work import Result, Store, Workers, WorkItem, do_all

SEEDS_PER_TASK = 10
TRAIN_LOSS_SAMPLES = 1000  # number of the clients' samples on which the training loss is evaluated


@dataclass(frozen=True)
class FederationSpec:
    """A federation in plain values.

    sizes          number of samples of each client
    participation  default 1
    labels         number of samples that each client is asked to label, 0 for clients who take no part; all by default
    aggregation    how reports are combined
    """

    data: Data
    model: ModelChoice
    sizes: tuple[int, ...]
    participation: tuple[float, ...] | None = None
    labels: tuple[int, ...] | None = None
    task: TaskChoice = PICTURES
    aggregation: str = MEAN

    @property
    def chances(self) -> tuple[float, ...]:
        """The probability that each client takes part in a round."""
        return (1.0,) * len(self.sizes) if self.participation is None else self.participation

    def document(self) -> dict[str, Any]:
        """JSON values for work items; a changed file of a custom task or strategy changes them."""
        return {
            "data": asdict(self.data),
            "model": self.model.document(),
            "sizes": list(self.sizes),
            "participation": list(self.chances),
            "labels": None if self.labels is None else list(self.labels),
            "task": self.task.document(),
            "aggregation": aggregation_document(self.aggregation),
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> FederationSpec:
        """The federation with this document; `InputError` if a file of its task or strategy was changed meanwhile."""
        labels = document["labels"]
        return cls(
            data=Data(**document["data"]),
            model=ModelChoice(**document["model"]),
            sizes=tuple(document["sizes"]),
            participation=tuple(document["participation"]),
            labels=None if labels is None else tuple(labels),
            task=TaskChoice.of_document(document["task"]),
            aggregation=aggregation_of(document["aggregation"]),
        )


@dataclass(frozen=True)
class Cell:
    """A federation, training parameters and strategies; a single number applies to all clients.

    every   rounds between two evaluations of the model; None: only after the last round
    pilot   train on the server's pilot data instead of the clients' data
    """

    federation: FederationSpec
    rounds: int
    step_size: float
    batch_size: tuple[float, ...] | int = 50
    labeling_effort: tuple[float, ...] | float = 1.0
    report_scale: tuple[float, ...] | float = 1.0
    every: int | None = None
    pilot: bool = False

    def tasks(self, seeds: Sequence[int]) -> list[WorkItem]:
        """Work items that train this cell, each with up to `SEEDS_PER_TASK` seeds.

        Seeds appended later do not change the items of full blocks, nor their stored results.
        """
        settings = {
            "federation": self.federation.document(),
            "rounds": self.rounds,
            "step_size": self.step_size,
            "batch_size": self.per_client(self.batch_size),
            "labeling_effort": self.per_client(self.labeling_effort),
            "report_scale": self.per_client(self.report_scale),
            "every": self.every or self.rounds,
            "pilot": self.pilot,
        }
        blocks = [list(seeds[first : first + SEEDS_PER_TASK]) for first in range(0, len(seeds), SEEDS_PER_TASK)]
        return [WorkItem("studies.cells:train_cell", settings | {"seeds": block}) for block in blocks]

    def per_client(self, value: tuple[float, ...] | float) -> list[float]:
        """The value as a list with one number per client."""
        values = value if isinstance(value, tuple) else (value,) * len(self.federation.sizes)
        return [float(number) for number in values]


@dataclass(frozen=True, eq=False)
class CellResult:
    """Loss on the clients' samples, loss and accuracy on the test set, arrays (seeds, evaluations).

    rounds  (evaluations,) the numbers of rounds after which the models were evaluated
    """

    rounds: NDArray[np.int64]
    train_loss: NDArray[np.float64]
    test_loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]

    def test_loss_at(self, rounds: int) -> NDArray[np.float64]:
        """The test loss after this number of rounds, one value per seed."""
        return self.test_loss[:, int(np.flatnonzero(self.rounds == rounds)[0])]

    @classmethod
    def of(cls, results: Sequence[Result]) -> CellResult:
        """The joined results of a cell's work items, in their order."""
        joined = {name: np.concatenate([r[name] for r in results]) for name in ("train_loss", "test_loss", "accuracy")}
        return cls(rounds=results[0]["rounds"], **joined)


def train_cell(
    *,
    federation: Mapping[str, Any],
    rounds: int,
    step_size: float,
    batch_size: Sequence[float],
    labeling_effort: Sequence[float],
    report_scale: Sequence[float],
    every: int,
    pilot: bool,
    seeds: Sequence[int],
) -> Result:
    """Train once per seed and evaluate every `every` rounds."""
    made = federation_of(federation)
    federated = replace(made.pilot if pilot else made.federated, training=Training(rounds, 1, step_size))
    strategies = Strategies(labeling_effort, batch_size, report_scale)
    data_sets = {"train": train_loss_samples(federated), "test": made.test}
    trained = train(federated, strategies, seeds, evaluate_on=data_sets, every=every, threads=1)
    return {
        "rounds": trained.rounds,
        "train_loss": trained.evaluations["train"].loss,
        "test_loss": trained.evaluations["test"].loss,
        "accuracy": trained.evaluations["test"].accuracy,
    }


def tune_step(
    *,
    federation: Mapping[str, Any],
    rounds: int,
    batch_size: int,
    low: float,
    high: float,
    seeds: int,
) -> Result:
    """Search the step size with the least test loss after `rounds` rounds on the server's pilot data."""
    made = federation_of(federation)
    federated = replace(made.pilot, training=Training(rounds, 1, low))
    search = find_step_size(federated, made.test, batch_size, low=low, high=high, seeds=seeds)
    return {"best": np.array(search.best), "tried": search.tried, "loss": search.loss, "error": search.standard_error}


def sample_gradients(
    *,
    federation: Mapping[str, Any],
    rounds: int,
    step_size: float,
    batch_size: int,
) -> Result:
    """Measure gradients along an honest training run on the server's pilot data."""
    federated = replace(federation_of(federation).pilot, training=Training(rounds, 1, step_size))
    gradients = measure_gradients(federated, batch_size=batch_size)
    return {
        "gradient_variance": gradients.gradient_variance,
        "label_shift": np.array(gradients.label_shift),
        "gradient_bound": np.array(gradients.gradient_bound),
    }


def train_loss_samples(federated: Federated) -> LabeledSamples:
    """Evenly spaced samples of all clients, with their true labels."""
    rows = federated.partition.rows
    count = min(TRAIN_LOSS_SAMPLES, len(rows))
    return federated.data.take(rows[np.arange(count) * len(rows) // count])


def federation_of(document: Mapping[str, Any]) -> SimulatedFederation:
    """The federation with the document of this `FederationSpec`; see `made_federation`."""
    return made_federation(FederationSpec.of_document(document))


def made_federation(spec: FederationSpec) -> SimulatedFederation:
    """The federation, its pilot and test data; with `labels`, each client has the samples that they label."""
    federation = build_federation(spec.data, spec.model, spec.sizes, Training(1), spec.chances, spec.task)
    rule = ReportRule(spec.aggregation)
    federated, pilot = replace(federation.federated, rule=rule), replace(federation.pilot, rule=rule)
    if spec.labels is not None:
        federated = ask_for_labels(federated, spec.labels, spec.data.seed)
        pilot = ask_for_labels(pilot, spec.labels, PILOT_SEED)
    return replace(federation, federated=federated, pilot=pilot)


def with_exceptions(value: float, count: int, other: float, clients: Sequence[int]) -> tuple[float, ...]:
    """One number per client: `other` for the clients listed, `value` for the rest of all `count` clients."""
    return tuple(other if i in clients else value for i in range(count))


StageProgress = Callable[[str, int, int], None]
"""Called with the name of the stage, the number of its finished tasks, and the number of all (0: unknown)."""


class StagedTasks:
    """Runs tasks and counts the tasks that were computed instead of read from the store."""

    def __init__(self, store: Store, workers: int | Workers | None, progress: StageProgress) -> None:
        self.store, self.workers, self.progress, self.computed = store, workers, progress, 0

    def do(self, stage: str, tasks: Sequence[WorkItem]) -> list[Result]:
        """The results of the tasks; `stage` is passed to the progress callback."""
        counts: list[int] = []

        def report(done: int, number: int) -> None:
            counts.append(done)
            self.progress(stage, done, number)

        results = do_all(tasks, self.store, workers=self.workers, progress=report)
        self.computed += counts[-1] - counts[0]
        return results

    def train(
        self, stage: str, cells: Sequence[Cell], seeds: Sequence[Sequence[int]], besides: Sequence[WorkItem] = ()
    ) -> tuple[list[CellResult], list[Result]]:
        """The results of each cell with its seeds, and of the tasks in `besides`, which run at the same time."""
        by_cell = [cell.tasks(cell_seeds) for cell, cell_seeds in zip(cells, seeds, strict=True)]
        results = self.do(stage, [*besides, *(task for tasks in by_cell for task in tasks)])
        rest = iter(results[len(besides) :])
        return [CellResult.of([next(rest) for _ in tasks]) for tasks in by_cell], results[: len(besides)]
